"""Installs what a manifest asks for into a folder: uv for Python, npm for Node."""

import json
import shutil
import subprocess
import tomllib
from pathlib import Path, PurePosixPath

from evolverpc_common.shielded import to_the_end
from protocol.errors import ProgramFailed
from rpc_server.commands.run import run_command
from rpc_server.jail.jail import Cell
from rpc_server.program.launch import environment as server_environment
from rpc_server.settings.settings import Settings
from rpc_server.worktrees.manifests import REQUIREMENTS, Manifest
from rpc_server.worktrees.removal import remove_folder

BUILD_S = 1800.0
"""Seconds that one command may take."""

VENV = "venv"
"""The Python environment in a folder that was installed to."""

_VERSION_S = 30.0
_FILES = "files"
_CACHE = "cache"

_UV_FOR_PIP = {
    "PIP_INDEX_URL": "UV_DEFAULT_INDEX",
    "PIP_EXTRA_INDEX_URL": "UV_INDEX",
    "PIP_FIND_LINKS": "UV_FIND_LINKS",
}
"""uv does not read pip's variables; whoever set them means them here too."""

_NPM_QUIET = ("--no-audit", "--no-fund", "--no-update-notifier", "--no-progress", "--loglevel=error")


async def install(
    manifest: Manifest, folder: Path, interpreter: Path, settings: Settings, cell: Cell | None = None
) -> None:
    """Make `folder` and install into it; nothing of the repository is there but the manifest's files.

    `cell`: the jail to do so in, which keeps no cache of packages: what is installed may be anybody's code.

    Raises:
        ProgramFailed: that is not possible; stage `environment`, and `log_tail` where a command said why.
    """
    for path, content in manifest.files.items():
        file = folder / _FILES / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    cache = folder / _CACHE
    env = server_environment(settings)
    if cell is not None:
        env |= {"UV_CACHE_DIR": str(cache / "uv"), "npm_config_cache": str(cache / "npm")}
    if manifest.language == "node":
        await _install_node(manifest, folder, env, cell)
    else:
        await _install_python(manifest, folder, interpreter, env, cell)
    await to_the_end(_remove, cache)


def installed_to(manifest: Manifest, folder: Path) -> Path:
    """Where in the folder the manifest's files are, and Node's packages."""
    return folder / _FILES / manifest.folder


def node_version(settings: Settings) -> str:
    """The version of the Node that programs find; what is installed for one need not run in another. Blocks.

    Raises:
        ProgramFailed: there is none that says it; stage `environment`.
    """
    environment = server_environment(settings)
    node = shutil.which("node", path=environment.get("PATH"))
    if node is None:
        raise _failed("package.json changed, and there is no node to install for")
    try:
        told = subprocess.run(  # noqa: S603  # the user's own Node
            [node, "--version"], env=environment, capture_output=True, text=True, check=True, timeout=_VERSION_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise _failed(f"{node} does not tell its version: {error}") from None
    return told.stdout.strip()


async def _install_python(
    manifest: Manifest, folder: Path, interpreter: Path, env: dict[str, str], cell: Cell | None
) -> None:
    names = {PurePosixPath(path).name for path in manifest.files}
    uv, venv, where = _uv(), folder / VENV, installed_to(manifest, folder)
    if {"uv.lock", "pyproject.toml"} <= names:
        command = [uv, "sync", "--quiet", "--frozen", "--no-install-project", "--active"]
    else:
        listed = [name for name in (REQUIREMENTS, "pyproject.toml") if (where / name).is_file()]
        if "pyproject.toml" in listed and not _lists_dependencies(where / "pyproject.toml"):
            listed.remove("pyproject.toml")
        if not listed:
            raise _failed(
                f"{', '.join(sorted(names))} changed, and only {REQUIREMENTS}, `project.dependencies` in pyproject.toml"
                " and uv.lock can be installed from"
            )
        required = [word for name in listed for word in ("--requirement", name)]
        command = [uv, "pip", "install", "--quiet", "--python", str(venv / "bin" / "python"), *required]
    env = env | {"VIRTUAL_ENV": str(venv)}
    env |= {name: env[pip] for pip, name in _UV_FOR_PIP.items() if pip in env and name not in env}
    await _run([uv, "venv", "--quiet", "--no-project", "--python", str(interpreter), str(venv)], where, env, cell)
    await _run(command, where, env, cell)


def _lists_dependencies(file: Path) -> bool:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise _failed(f"pyproject.toml cannot be read: {error}") from None
    return "dependencies" in document.get("project", {})


async def _install_node(manifest: Manifest, folder: Path, env: dict[str, str], cell: Cell | None) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise _failed("package.json changed, and there is no npm to install from it")
    where = installed_to(manifest, folder)
    _drop_scripts(where / "package.json")
    locked = any((where / name).is_file() for name in ("package-lock.json", "npm-shrinkwrap.json"))
    (where / "node_modules").mkdir(exist_ok=True)  # npm makes none where nothing is required any more
    await _run([npm, "ci" if locked else "install", *_NPM_QUIET], where, env, cell)


def _drop_scripts(file: Path) -> None:
    """Leave out what npm would run of the program's own (`prepare`): its files are not there."""
    try:
        document = json.loads(file.read_bytes())
        document.pop("scripts", None)
    except FileNotFoundError:
        raise _failed("there is a lock file and no package.json") from None
    except (ValueError, RecursionError, AttributeError) as error:
        raise _failed(f"package.json cannot be read: {error}") from None
    file.write_text(json.dumps(document, indent=2), encoding="utf-8")


async def _run(command: list[str], where: Path, env: dict[str, str], cell: Cell | None) -> None:
    await run_command(command, folder=where, environment=env, timeout_s=BUILD_S, stage="environment", cell=cell)


def _remove(cache: Path) -> None:
    if cache.is_dir() and not cache.is_symlink():  # what was installed may have put anything there
        remove_folder(cache)
    else:
        cache.unlink(missing_ok=True)


def _failed(message: str) -> ProgramFailed:
    return ProgramFailed(message, stage="environment")


def _uv() -> str:
    """The uv that is installed beside this server, else one on the PATH."""
    try:
        from uv import find_uv_bin

        return str(find_uv_bin())
    except (ImportError, FileNotFoundError):
        found = shutil.which("uv")
    if found is None:
        raise _failed(
            "what the program requires changed, and there is no uv to install it: "
            "run pip install '.[agent]' in the folder of evolverpc"
        )
    return found
