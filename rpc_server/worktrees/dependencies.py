"""Dependencies of a commit: what installs them, a digest of what that reads, and their installation."""

import hashlib
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from evolverpc_common.build_cache import BUILD_S, FILES, VENV, BuiltEnvironment, refuse_links_out
from evolverpc_common.files import remove_tree
from evolverpc_common.node_tools import NodeInstall, installed_modules, node_install
from evolverpc_common.python_tools import TOOL_VARIABLES, PythonInstall, find_uv, python_install, uv_variables
from evolverpc_common.shielded import run_shielded
from protocol.errors import ProgramFailed
from rpc_server.jail.jail import Jail
from rpc_server.program.launcher import program_environment
from rpc_server.program.supervised_command import run_command
from rpc_server.settings import Settings
from rpc_server.worktrees.repository import UserRepository

Language = Literal["python", "node"]

T = TypeVar("T", PythonInstall, NodeInstall)


@dataclass(frozen=True)
class Manifest:
    """The tool that installs what a commit lists for one language, if it lists anything, and a digest of what it reads.

    `digest`: `""` if nothing is listed. `problem`: why it cannot be installed.
    """

    language: Language
    install: PythonInstall | NodeInstall | None = None
    digest: str = ""
    problem: str = ""


def manifests_of(repository: UserRepository, commit: str, objects: Path | None = None) -> dict[Language, Manifest]:
    """Return the manifests of a commit, which may be in `objects`, by language."""
    ids = repository.ids(commit, objects)

    def manifest(
        language: Language,
        choose: Callable[[str, Mapping[str, str], Mapping[str, bytes]], tuple[T | None, set[str]]],
    ) -> Manifest:
        documents: dict[str, bytes] = {}
        try:
            found, unread = choose(repository.prefix, ids, documents)
            while unread:
                documents |= repository.read_all(commit, unread, objects)
                found, unread = choose(repository.prefix, ids, documents)
        except ValueError as error:  # raised when it is installed, if it ever is
            return Manifest(language, None, hashlib.sha256(str(error).encode()).hexdigest(), str(error))
        return Manifest(language) if found is None else Manifest(language, found, found.digest)

    return {"python": manifest("python", python_install), "node": manifest("node", node_install)}


_VERSION_S = 30.0
_CACHE = "cache"
_CHECKOUT = f"{_CACHE}/program"

_Run = Callable[[Sequence[str], Path, Mapping[str, str]], Awaitable[str]]
"""Runs a command in a folder, with more variables, and returns the end of its output."""


async def install_into(
    folder: Path,
    manifest: Manifest,
    interpreter: Path,
    settings: Settings,
    check_out: Callable[[Path], None],
    jail: Jail | None = None,
) -> BuiltEnvironment:
    """Create `folder` and install into it, in a checkout.

    `check_out` writes the commit's files into a new folder. `jail`: the jail to run in, without a shared package cache,
    as installed code is untrusted.

    Raises:
        ProgramFailed: it cannot be installed; stage `environment`, and `log_tail` if a command failed.
    """
    install = manifest.install
    if install is None:
        raise _failed(manifest.problem)
    cache = folder / _CACHE
    env = program_environment(settings)
    if jail is not None:
        env |= {"UV_CACHE_DIR": str(cache / "uv"), "npm_config_cache": str(cache / "npm")}
        env |= {f"XDG_{kind}_HOME": str(cache / kind) for kind in ("CACHE", "DATA", "STATE")}

    async def check(paths: Iterable[str | Path]) -> None:
        try:
            await run_shielded(refuse_links_out, folder, paths)
        except ValueError as error:
            raise _failed(str(error)) from None

    async def run(command: Sequence[str], where: Path, variables: Mapping[str, str]) -> str:
        given, stage = {**env, **variables}, "environment"
        await check([*command, where, *variables.values()])
        return await run_command(command, folder=where, environment=given, timeout_s=BUILD_S, stage=stage, jail=jail)

    if isinstance(install, PythonInstall):
        await run_shielded(check_out, folder / _CHECKOUT)
        built = await _install_python(install, folder, interpreter, uv_variables(env), run)
    else:
        await run_shielded(check_out, folder / FILES)
        built = await _install_node(install, folder, run)
    modules = await run_shielded(lambda: [*installed_modules(folder / FILES)])
    await check([*built.places, *built.env.values(), *(each / ".bin" for each in modules)])
    await run_shielded(remove_tree, cache)
    return built


def node_version(settings: Settings) -> str:
    """Return the version of Node on the program's `PATH`, part of an environment's identity. Blocks.

    Raises:
        ProgramFailed: there is no Node, or it does not print a version; stage `environment`.
    """
    environment = program_environment(settings)
    node = shutil.which("node", path=environment.get("PATH"))
    if node is None:
        raise _failed("package.json changed, and there is no node to install for")
    try:
        completed = subprocess.run(  # noqa: S603  # the user's own Node
            [node, "--version"], env=environment, capture_output=True, text=True, check=True, timeout=_VERSION_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise _failed(f"{node} did not print its version: {error}") from None
    return completed.stdout.strip()


async def _install_python(
    install: PythonInstall, folder: Path, interpreter: Path, variables: Mapping[str, str], run: _Run
) -> BuiltEnvironment:
    uv, venv = _uv(), folder / VENV
    python, env = str(venv / "bin" / "python"), {"VIRTUAL_ENV": str(venv)}

    async def run_tool(command: list[str], where: Path) -> str:
        return await run(command, where, {**variables, **TOOL_VARIABLES, **env})

    await run_tool([uv, "venv", "--quiet", "--no-project", "--python", str(interpreter), str(venv)], folder)
    paths = await install.run(folder / _CHECKOUT, uv, python, run_tool)
    return BuiltEnvironment(python, (str(venv / "bin"),), (str(folder),), env, paths)


async def _install_node(install: NodeInstall, folder: Path, run: _Run) -> BuiltEnvironment:
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        raise _failed("package.json changed, and there is no npm to install from it")
    await install.run(folder / FILES, (npm,), node, folder / _CACHE, run)
    return BuiltEnvironment(mounts=(str(folder),))


def _failed(message: str) -> ProgramFailed:
    return ProgramFailed(message, stage="environment")


def _uv() -> str:
    """Return the path of the uv installed with this server, else of one on the PATH."""
    found = find_uv()
    if found is None:
        raise _failed(
            "what the program requires changed, and there is no uv to install it: "
            "run pip install '.[agent]' in the folder of evolverpc"
        )
    return found
