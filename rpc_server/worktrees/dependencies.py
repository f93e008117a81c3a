"""Dependencies of a commit: its manifests, a digest of them, and their installation by uv, npm or pnpm."""

import hashlib
import json
import posixpath
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from evolverpc_common.build_cache import BUILD_S, FILES, VENV, BuiltEnvironment, EnvironmentRecord
from evolverpc_common.files import remove_tree
from evolverpc_common.node_packages import MODULES, PACKAGE_JSON, node_project
from evolverpc_common.package_managers import (
    find_uv,
    node_commands,
    uv_variables,
    without_npm_scripts,
)
from evolverpc_common.python_tools import TOOL_VARIABLES, PythonInstall, python_install
from evolverpc_common.shielded import run_shielded
from protocol.errors import ProgramFailed
from rpc_server.jail.jail import Jail
from rpc_server.program.launcher import program_environment
from rpc_server.program.supervised_command import run_command
from rpc_server.settings.settings import Settings
from rpc_server.worktrees.repository import UserRepository

Language = Literal["python", "node"]


@dataclass(frozen=True)
class Manifest:
    """The manifest files of one language, by path in the repository, and a digest of what they require.

    `folder`: where they are installed from: the program's folder, that of its npm workspaces, or the repository's top
    (`""`).
    `alone`: folders of further Node packages that npm runs in. `problems`: why some dependencies cannot be installed.
    `python`: the tool that installs a Python program, in a checkout. `digest`: `""` if there are no manifests.
    """

    language: Language
    folder: str
    files: dict[str, bytes]
    digest: str
    alone: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    python: PythonInstall | None = None


def manifests_of(repository: UserRepository, commit: str, objects: Path | None = None) -> dict[Language, Manifest]:
    """Return the manifests of a commit, which may be in `objects`, by language; without files if it has none."""
    paths = set(repository.files(commit, objects))

    def read(wanted: Iterable[str]) -> dict[str, bytes]:
        return repository.read_all(commit, wanted, objects)

    return {
        "python": _python_manifest(repository.prefix, repository.ids(commit, objects), read),
        "node": _node_manifest(repository.prefix, paths, read),
    }


def local_node_packages(repository: UserRepository, commit: str) -> list[str]:
    """Return the folders of the repository's Node packages that are installed with the program, but none around it."""
    manifests = manifests_of(repository, commit)["node"].files
    folders = sorted(posixpath.dirname(path) for path in manifests if posixpath.basename(path) == PACKAGE_JSON)
    return [folder for folder in folders if folder and not f"{repository.prefix}/".startswith(f"{folder}/")]


def _python_manifest(prefix: str, ids: dict[str, str], read: Callable[[Iterable[str]], dict[str, bytes]]) -> Manifest:
    documents: dict[str, bytes] = {}
    try:
        found, unread = python_install(prefix, ids, documents)
        while unread:
            documents |= read(unread)
            found, unread = python_install(prefix, ids, documents)
    except ValueError as error:  # raised when it is installed, if it ever is
        return Manifest("python", prefix, documents, _digest(documents), problems=(str(error),))
    if found is None:
        return Manifest("python", "", {}, "")
    return Manifest("python", found.folder, documents, found.digest, python=found)


def _node_manifest(prefix: str, paths: set[str], read: Callable[[Iterable[str]], dict[str, bytes]]) -> Manifest:
    documents: dict[str, bytes] = {}
    try:
        project = node_project(prefix, paths, documents)
        while project is not None and project.unread:
            documents |= read(project.unread)
            project = node_project(prefix, paths, documents)
    except ValueError as error:  # raised when it is installed, if it ever is
        return Manifest("node", prefix, documents, _digest(documents), problems=(str(error),))
    if project is None:
        return Manifest("node", "", {}, "")
    found = read(project.manifests(paths))
    relative = tuple(each for each in project.outside if "`file:/" not in each)  # an absolute path stays where it is
    digest = _digest(found | {"alone": "\n".join(project.alone).encode()} if project.alone else found)
    return Manifest("node", project.root, found, digest, project.alone, (*project.problems, *relative))


def _digest(files: dict[str, bytes]) -> str:
    digest = hashlib.sha256()
    for path, content in sorted(files.items()):
        relevant = _needs(content) if posixpath.basename(path) == PACKAGE_JSON else content
        digest.update(f"{path} {len(relevant)}\n".encode("utf-8", "surrogateescape"))
        digest.update(relevant)
    return digest.hexdigest()[:24]


def _needs(content: bytes) -> bytes:
    """Return the part of a `package.json` that affects the installation; the whole file if it cannot be parsed."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):  # no JSON, or nested too deep
        return content
    if not isinstance(document, dict):
        return content
    return json.dumps({key: document.get(key) for key in _NEEDED_KEYS}, sort_keys=True).encode()


_NEEDED_KEYS = (
    *("dependencies", "devDependencies", "optionalDependencies", "peerDependencies", "overrides", "pnpm"),
    *("engines", "workspaces", "packageManager"),
)
_VERSION_S = 30.0
_CACHE = "cache"
_CHECKOUT = f"{_CACHE}/program"

_Run = Callable[[list[str], Path, Mapping[str, str]], Awaitable[str]]
"""Runs a command in a folder, with more variables, and returns the end of its output."""


async def install(
    manifest: Manifest,
    folder: Path,
    interpreter: Path,
    settings: Settings,
    check_out: Callable[[Path], None],
    jail: Jail | None = None,
) -> EnvironmentRecord:
    """Create `folder` and install into it: Node's packages from the manifest's files, a Python program in a checkout.

    `check_out` writes the commit's files into a new folder. `jail`: the jail to run in, without a shared package cache,
    as installed code is untrusted.

    Raises:
        ProgramFailed: it cannot be installed; stage `environment`, and `log_tail` if a command failed.
    """
    if manifest.problems:
        raise _failed("\n".join(manifest.problems))
    cache = folder / _CACHE
    env = program_environment(settings)
    if jail is not None:
        env |= {"UV_CACHE_DIR": str(cache / "uv"), "npm_config_cache": str(cache / "npm")}

    async def run(command: list[str], where: Path, variables: Mapping[str, str]) -> str:
        given, stage = {**env, **variables}, "environment"
        return await run_command(command, folder=where, environment=given, timeout_s=BUILD_S, stage=stage, jail=jail)

    try:
        if manifest.python is not None:
            await run_shielded(check_out, folder / _CHECKOUT)
            record = await _install_python(manifest.python, folder, interpreter, uv_variables(env), run)
        else:
            for path, content in without_npm_scripts(manifest.files).items():
                file = folder / FILES / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
            record = await _install_node(manifest, folder, run)
    except ValueError as error:  # of a manifest that cannot be read
        raise _failed(str(error)) from None
    await run_shielded(remove_tree, cache)
    return record


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
) -> EnvironmentRecord:
    uv, venv = _uv(), folder / VENV
    python, env = str(venv / "bin" / "python"), {"VIRTUAL_ENV": str(venv)}

    async def run_tool(command: list[str], where: Path) -> str:
        return await run(command, where, {**variables, **TOOL_VARIABLES, **env})

    await run_tool([uv, "venv", "--quiet", "--no-project", "--python", str(interpreter), str(venv)], folder)
    paths = await install.run(folder / _CHECKOUT, uv, python, run_tool)
    built = BuiltEnvironment(python, (str(venv / "bin"),), (str(folder),), env, paths)
    return EnvironmentRecord(built, needs=(python,))


async def _install_node(manifest: Manifest, folder: Path, run: _Run) -> EnvironmentRecord:
    npm = shutil.which("npm")
    if npm is None:
        raise _failed("package.json changed, and there is no npm to install from it")
    folders, top = (manifest.folder, *manifest.alone), folder / FILES
    for where in folders:
        (top / where / MODULES).mkdir(exist_ok=True)  # npm makes none where nothing is required any more
    for _, command, variables in node_commands(manifest.files, folders, str(top), (npm,), folder / _CACHE):
        await run(command, folder, variables)
    return EnvironmentRecord(BuiltEnvironment(mounts=(str(folder),)))


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
