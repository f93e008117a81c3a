"""A framework's own starter: fetched from its registry, patched, and with an environment to run in."""

import contextlib
import fcntl
import hashlib
import io
import itertools
import os
import re
import shutil
import subprocess
import sys
import tarfile
import textwrap
import tomllib
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from evolverpc_common.python_package_managers import find_uv, uv_variables

HERE = Path(__file__).resolve().parent
FOLDER = Path(sys.prefix) / "frameworks" / "examples"
"""Where programs and their environments are kept; `make clean` removes them."""
EVOLVERPC = HERE.parents[1] / "clients" / "typescript"
MADE_FROM = ("starter.toml", "optimise.patch", "gepa.toml", "requirements.txt", "package.json", "package-lock.json")
BLOCK = re.compile(r"^( *)```[^`\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


class NotPrepared(Exception):
    """A starter could not be fetched, patched or installed; the message has the reason and what to do."""


@dataclass(frozen=True)
class Example:
    """One folder beside this file."""

    name: str

    @property
    def folder(self) -> Path:
        """Its files in the repository."""
        return HERE / self.name

    @property
    def program(self) -> Path:
        """The folder of the patched starter, its environment and `gepa.toml`."""
        return FOLDER / self.name

    @property
    def starter(self) -> dict[str, Any]:
        """`starter.toml`: `url` and `sha256` of an archive, the `path` of a file or folder in it and its `licence`.

        If the starter is made of fenced blocks of code in the file, `blocks` has their numbers, from 1, by the files
        that they are written to.
        """
        return tomllib.loads((self.folder / "starter.toml").read_text(encoding="utf-8"))

    def lines_changed(self) -> int:
        """Return the number of lines of code that the patch changes."""
        return lines_changed((self.folder / "optimise.patch").read_text(encoding="utf-8").splitlines())

    def prepare(self) -> None:
        """Fetch, patch and install, if that has not been done with the files as they are.

        Raises:
            NotPrepared: it is not possible.
        """
        is_typescript = (self.folder / "package.json").is_file()
        if is_typescript and (shutil.which("npm") is None or not (EVOLVERPC / "dist" / "index.js").is_file()):
            raise NotPrepared("Node.js is needed, and the built package evolverpc: make setup")
        contents = [path.read_bytes() for path in map(self.folder.joinpath, MADE_FROM) if path.is_file()]
        wanted = hashlib.sha256(b"\0".join(contents)).hexdigest()
        with _stamp(FOLDER / f"{self.name}.stamp", wanted) as is_current:
            if not is_current:
                shutil.rmtree(self.program, ignore_errors=True)
                self.program.mkdir()
                self._unpack()
                _run("git", "apply", str(self.folder / "optimise.patch"), folder=self.program)
                shutil.copy(self.folder / "gepa.toml", self.program)
                (self._install_node if is_typescript else self._install_python)()

    def _unpack(self) -> None:
        starter = self.starter
        path = PurePosixPath(starter["path"])
        with tarfile.open(fileobj=io.BytesIO(fetch(starter["url"], starter["sha256"]))) as archive:
            for member in archive:
                name = PurePosixPath(member.name)
                if member.isfile() and name.is_relative_to(path):
                    content = archive.extractfile(member)
                    inside = name.relative_to(path) if name != path else name.name
                    self._write(inside, content.read() if content is not None else b"")
        for file, number in starter.get("blocks", {}).items():
            page = (self.program / path.name).read_text(encoding="utf-8")
            self._write(file, textwrap.dedent(BLOCK.findall(page)[number - 1][1]).encode())

    def _write(self, name: PurePosixPath | str, content: bytes) -> None:
        target = self.program / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)

    def _install_node(self) -> None:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(self.folder / name, self.program)
        flags = ["--omit=peer", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        _run("npm", "ci", *flags, folder=self.program)
        (self.program / "node_modules" / "evolverpc").symlink_to(EVOLVERPC)

    def _install_python(self) -> None:
        uv = find_uv()
        if uv is None:
            raise NotPrepared("uv is needed to install the framework: make setup, or pip install uv")
        _run(uv, "venv", "--quiet", "--python", sys.executable, ".venv", folder=self.program)
        install = [uv, "pip", "install", "--quiet", "--no-build", "--python", ".venv/bin/python"]
        _run(*install, "--requirement", str(self.folder / "requirements.txt"), folder=self.program)


def examples() -> list[Example]:
    """Return all, by name."""
    return [Example(path.parent.name) for path in sorted(HERE.glob("*/starter.toml"))]


def lines_changed(patch: list[str]) -> int:
    """Return the number of lines of code that a patch changes; a line that replaces another counts once."""
    count = 0
    body = [line for line in patch if not line.startswith(("--- ", "+++ "))]
    for changed, group in itertools.groupby(body, key=lambda line: line[:1] in ("-", "+")):
        marks = [line[0] for line in group if changed and line[1:].strip()]
        count += max(marks.count("-"), marks.count("+"))
    return count


@contextlib.contextmanager
def _stamp(file: Path, wanted: str) -> Iterator[bool]:
    """Yield whether the file holds this text; write it after the block. One process at a time."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        held.seek(0)
        is_current = held.read() == wanted
        yield is_current
        if not is_current:
            held.truncate(0)
            held.write(wanted)


def fetch(url: str, sha256: str) -> bytes:
    """Return what an address has. Raises `NotPrepared` if that is nothing, or has another hash."""
    try:
        with urllib.request.urlopen(url, timeout=60) as response:  # noqa: S310  the addresses are those of the files
            content: bytes = response.read()
    except OSError as error:
        raise NotPrepared(f"{url} could not be fetched ({error}): is the network in reach?") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise NotPrepared(f"{url} has another sha256 than starter.toml")
    return content


def _run(*command: str, folder: Path) -> None:
    environment = {**os.environ, **uv_variables(os.environ)}
    environment["GIT_CEILING_DIRECTORIES"] = str(folder.parent)  # the patch is of these files, not of a repository's
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=False)  # noqa: S603
    if done.returncode != 0:
        raise NotPrepared(f"`{' '.join(command)}` failed in {folder}")
