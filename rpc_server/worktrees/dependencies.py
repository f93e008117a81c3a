"""Dependencies of a commit: its manifests, a digest of them, and their installation by uv, npm or pnpm."""

import hashlib
import json
import posixpath
import shutil
import subprocess
import tomllib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from evolverpc_common.build_cache import BUILD_S, FILES, VENV, BuiltEnvironment, EnvironmentRecord
from evolverpc_common.files import remove_tree
from evolverpc_common.node_packages import MODULES, PACKAGE_JSON, node_project
from evolverpc_common.package_managers import (
    INCLUDED_REQUIREMENTS,
    PYPROJECT,
    REQUIREMENTS,
    find_uv,
    node_commands,
    python_commands,
    uv_variables,
    without_npm_scripts,
)
from evolverpc_common.shielded import run_shielded
from protocol.errors import ProgramFailed
from rpc_server.jail.jail import Jail
from rpc_server.program.launcher import program_environment
from rpc_server.program.supervised_command import run_command
from rpc_server.settings.settings import Settings
from rpc_server.worktrees.repository import UserRepository

Language = Literal["python", "node"]

_PYTHON_MANIFESTS = (REQUIREMENTS, PYPROJECT, "uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock")


@dataclass(frozen=True)
class Manifest:
    """The manifest files of one language, by path in the repository, and a digest of what they require.

    `folder`: where they are installed from: the program's folder, that of its npm workspaces, or the repository's top
    (`""`).
    `alone`: folders of further Node packages that npm runs in. `problems`: why some dependencies cannot be installed.
    """

    language: Language
    folder: str
    files: dict[str, bytes]
    digest: str
    alone: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def manifests_of(repository: UserRepository, commit: str, objects: Path | None = None) -> dict[Language, Manifest]:
    """Return the manifests of a commit, which may be in `objects`, by language; without files if it has none."""
    paths = set(repository.files(commit, objects))

    def read(wanted: Iterable[str]) -> dict[str, bytes]:
        return repository.read_all(commit, wanted, objects)

    return {
        "python": _python_manifest(repository.prefix, paths, read),
        "node": _node_manifest(repository.prefix, paths, read),
    }


def local_node_packages(repository: UserRepository, commit: str) -> list[str]:
    """Return the folders of the repository's Node packages that are installed with the program, but none around it."""
    manifests = manifests_of(repository, commit)["node"].files
    folders = sorted(posixpath.dirname(path) for path in manifests if posixpath.basename(path) == PACKAGE_JSON)
    return [folder for folder in folders if folder and not f"{repository.prefix}/".startswith(f"{folder}/")]


def _python_manifest(prefix: str, paths: set[str], read: Callable[[Iterable[str]], dict[str, bytes]]) -> Manifest:
    for folder in dict.fromkeys((prefix, "")):
        wanted = {posixpath.join(folder, name) for name in _PYTHON_MANIFESTS} & paths
        found: dict[str, bytes] = {}
        while wanted:
            more = read(wanted)
            found |= more
            wanted = (_included(more) & paths) - found.keys()
        if found:
            return Manifest("python", folder, found, _digest(found))
    return Manifest("python", "", {}, "")


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


def _included(files: dict[str, bytes]) -> set[str]:
    return {
        posixpath.normpath(posixpath.join(posixpath.dirname(path), line["path"]))
        for path, content in files.items()
        if path.endswith(".txt")
        for line in INCLUDED_REQUIREMENTS.finditer(content.decode("utf-8", "replace"))
    }


def _digest(files: dict[str, bytes]) -> str:
    digest = hashlib.sha256()
    for path, content in sorted(files.items()):
        relevant = _needs(posixpath.basename(path), content)
        digest.update(f"{path} {len(relevant)}\n".encode("utf-8", "surrogateescape"))
        digest.update(relevant)
    return digest.hexdigest()[:24]


def _needs(name: str, content: bytes) -> bytes:
    """Return the part of a file that affects the installation; the whole file if it cannot be parsed."""
    if name not in _TABLES:
        return content
    read, keys = _TABLES[name]
    try:
        document = read(content.decode())
    except (ValueError, RecursionError):  # no TOML, no JSON, or nested too deep
        return content
    if not isinstance(document, dict):
        return content
    relevant = {key: _under(document, key.split(".")) for key in keys}
    return json.dumps(relevant, sort_keys=True, default=str).encode()


def _under(document: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document


_TABLES: dict[str, tuple[Callable[[str], Any], tuple[str, ...]]] = {
    PYPROJECT: (
        tomllib.loads,
        (
            *("project.dependencies", "project.optional-dependencies", "project.requires-python", "project.dynamic"),
            *("dependency-groups", "build-system", "tool.uv", "tool.poetry.dependencies", "tool.poetry.group"),
        ),
    ),
    "package.json": (
        json.loads,
        (
            *("dependencies", "devDependencies", "optionalDependencies", "peerDependencies", "overrides", "pnpm"),
            *("engines", "workspaces", "packageManager"),
        ),
    ),
}


_VERSION_S = 30.0
_CACHE = "cache"

_Run = Callable[[list[str], Mapping[str, str]], Awaitable[None]]
"""Runs a command in the installation folder, with more variables."""


async def install(
    manifest: Manifest, folder: Path, interpreter: Path, settings: Settings, jail: Jail | None = None
) -> EnvironmentRecord:
    """Create `folder` and install into it, from the manifest's files alone.

    `jail`: the jail to run in, without a shared package cache, as installed code is untrusted.

    Raises:
        ProgramFailed: it cannot be installed; stage `environment`, and `log_tail` if a command failed.
    """
    if manifest.problems:
        raise _failed("\n".join(manifest.problems))
    cache = folder / _CACHE
    env = program_environment(settings)
    if jail is not None:
        env |= {"UV_CACHE_DIR": str(cache / "uv"), "npm_config_cache": str(cache / "npm")}

    async def run(command: list[str], variables: Mapping[str, str]) -> None:
        given = {**env, **variables}
        await run_command(command, folder=folder, environment=given, timeout_s=BUILD_S, stage="environment", jail=jail)

    try:
        for path, content in without_npm_scripts(manifest.files).items():
            file = folder / FILES / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        if manifest.language == "node":
            record = await _install_node(manifest, folder, run)
        else:
            record = await _install_python(manifest, folder, interpreter, uv_variables(env), run)
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
    manifest: Manifest, folder: Path, interpreter: Path, variables: Mapping[str, str], run: _Run
) -> EnvironmentRecord:
    uv, venv, where = _uv(), folder / VENV, folder / FILES / manifest.folder
    python = str(venv / "bin" / "python")
    named = {posixpath.relpath(path, manifest.folder or "."): content for path, content in manifest.files.items()}
    commands = [[uv, *command] for _, command in python_commands(named, str(where), python)]
    if not commands:
        raise _failed(
            f"{', '.join(sorted(named))} changed, and only {REQUIREMENTS}, `project.dependencies` in {PYPROJECT}"
            " and uv.lock can be installed from"
        )
    built = BuiltEnvironment(python, (str(venv / "bin"),), (str(folder),), {"VIRTUAL_ENV": str(venv)})
    for command in ([uv, "venv", "--quiet", "--no-project", "--python", str(interpreter), str(venv)], *commands):
        await run(command, {**variables, **built.env})
    return EnvironmentRecord(built, needs=(python,))


async def _install_node(manifest: Manifest, folder: Path, run: _Run) -> EnvironmentRecord:
    npm = shutil.which("npm")
    if npm is None:
        raise _failed("package.json changed, and there is no npm to install from it")
    folders, top = (manifest.folder, *manifest.alone), folder / FILES
    for where in folders:
        (top / where / MODULES).mkdir(exist_ok=True)  # npm makes none where nothing is required any more
    for _, command, variables in node_commands(manifest.files, folders, str(top), (npm,), folder / _CACHE):
        await run(command, variables)
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
