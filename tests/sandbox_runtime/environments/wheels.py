"""Build commands as plain processes, and wheels, for the tests of environments."""

import io
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandbox_runtime import Command
from sandbox_runtime.backends.process_commands import run_build


@dataclass
class HostRun:
    """Runs build commands as the process backend does, and keeps what it was asked to run."""

    commands: list[list[str]] = field(default_factory=list)
    envs: list[dict[str, str]] = field(default_factory=list)
    readable: list[list[str]] = field(default_factory=list)

    async def __call__(
        self, argv: Sequence[str], cwd: Path, env: Mapping[str, str], timeout_s: float, readable: Sequence[str]
    ) -> tuple[int, bytes]:
        self.commands.append(list(argv))
        self.envs.append(dict(env))
        self.readable.append(list(readable))
        return await run_build(argv, cwd, env, timeout_s, readable)


def make_wheel(folder: Path, name: str, version: str, files: Mapping[str, str]) -> None:
    """A wheel of these files, in a folder for `UV_FIND_LINKS`. Files in a `bin` folder are executable."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    contents = dict(files) | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    contents[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in (*contents, f"{info}/RECORD"))
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
        for path, content in contents.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = (0o755 if "/bin/" in path else 0o644) << 16
            wheel.writestr(entry, content)


_BACKEND = """
import os, zipfile
def build_wheel(folder, *_, linked=False):
    info, file = "NAME-1.dist-info", "NAME-1-py3-none-any.whl"
    with zipfile.ZipFile(f"{folder}/{file}", "w") as wheel:
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: NAME\\nVersion: 1\\nREQUIRES")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/RECORD", "")
        own = ("NAME.pth", os.path.abspath("src")) if linked else ("NAME.py", open("src/NAME.py").read())
        wheel.writestr(*own)
    return file
def build_editable(folder, *_):
    return build_wheel(folder, linked=True)
"""


def local_package(folder: str, name: str, value: str, requires: str = "") -> dict[str, str]:
    """A package of a repository, which needs no other to be built; its module has a `VALUE`."""
    backend = _BACKEND.replace("NAME", name).replace("REQUIRES", f"Requires-Dist: {requires}\\n" if requires else "")
    project = f'[project]\nname = "{name}"\nversion = "1"\nrequires-python = ">=3.8"\n'
    build = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    return {
        f"{folder}pyproject.toml": f"{project}dependencies = {[requires] if requires else []}\n{build}",
        f"{folder}backend.py": backend,
        f"{folder}src/{name}.py": f"VALUE = {value!r}\n",
    }


def packed(files: Mapping[str, str], folder: str = "") -> bytes:
    """A tar of these files, compressed, in a folder of their own."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz") as archive:
        for path, content in files.items():
            entry = tarfile.TarInfo(folder + path)
            entry.size = len(content.encode())
            archive.addfile(entry, io.BytesIO(content.encode()))
    return written.getvalue()


def unpack_command(files: Mapping[str, str]) -> Command:
    """Makes `program` with these files, in place of those of a commit."""
    return Command(("sh", "-ec", "mkdir program; tar -xzC program"), stdin=packed(files))


def places(cache: Path) -> list[str]:
    """The buildings in a cache, begun and finished, by their names."""
    return sorted(place.name for place in cache.glob("*/*/"))


def exists(path: str | None) -> bool:
    return path is not None and Path(path).exists()
