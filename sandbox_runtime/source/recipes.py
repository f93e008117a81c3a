"""Derive a recipe from a program's manifests."""

import json
import posixpath
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from evolverpc_common.node_packages import NODE_MANIFESTS, PACKAGE_JSON, NodeProject, node_project
from evolverpc_common.python_tools import (
    PYPROJECT,
    PYTHON_VERSION,
    PythonInstall,
    python_install,
    read_pyproject,
    under,
)
from sandbox_runtime.api.sandbox import SandboxError
from sandbox_runtime.api.spec import Recipe
from sandbox_runtime.environments.python import OLDEST

SERVER_SETTINGS = "gepa.toml"

_PYTHON_VERSION = (PYTHON_VERSION, PYPROJECT)
_NODE_VERSION = (".node-version", ".nvmrc")
_ANY_NODE = {"node", "stable", "current", "latest", "lts/*", "lts"}
_NODE_NAMES = {"argon": 4, "boron": 6, "carbon": 8, "dubnium": 10, "erbium": 12, "fermium": 14, "gallium": 16}
_NODE_NAMES |= {"hydrogen": 18, "iron": 20, "jod": 22, "krypton": 24}
"""Releases of Node with long support, by the names that `.nvmrc` gives them: `lts/iron`."""

Read = Callable[[Iterable[str]], Awaitable[dict[str, bytes]]]
"""Returns those files of a program that exist, by their paths from the repository's top."""


class ProgramFiles(Protocol):
    """The files of a program's repository; paths are from its top."""

    async def read(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Return those of these files that exist. Raises `SandboxError`."""
        ...

    async def ids(self) -> Mapping[str, str]:
        """Return the ids of the contents of all files, by path. Raises `SandboxError`."""
        ...


@dataclass(frozen=True)
class ProgramNeeds:
    """A program's recipe.

    `node_folder`: the folder of the repository that the recipe's Node packages are relative to, None if it has none.
    """

    recipe: Recipe
    node_folder: str | None


async def program_needs(files: ProgramFiles, folder: str) -> ProgramNeeds:
    """Return what the program in a folder needs, by the manifests there, else above it.

    A program without any manifest gets a Python all the same. Files of Node keep their paths from `node_folder`.

    Raises:
        SandboxError: a manifest cannot be read, or names a package that no sandbox can have.
    """
    ids = await files.ids()
    install = await _python_install(files, folder, ids)
    _, node = await _found(files.read, folder, NODE_MANIFESTS)
    _, python_version = await _found(files.read, folder if install is None else install.folder, _PYTHON_VERSION)
    _, node_version = await _found(files.read, folder, _NODE_VERSION)
    python_wanted = _python_version(python_version)
    node_wanted = _node_version(node | node_version)
    project = await _node_project(files, folder, ids) if PACKAGE_JSON in node else None
    if project is None:
        if not (install or python_wanted or node_wanted):
            python_wanted = OLDEST
        return ProgramNeeds(Recipe(python=python_wanted, node=node_wanted, install=install), None)
    top = posixpath.commonpath(project.folders) if len(project.folders) > 1 else project.root
    manifests = await files.read(project.manifests(ids.keys()))
    recipe = Recipe(
        python=python_wanted,
        node=node_wanted,
        files={_below(top, path): content for path, content in manifests.items()},
        node_folders=tuple(_below(top, where) for where in (project.root, *project.alone)),
        install=install,
    )
    return ProgramNeeds(recipe, top)


async def _python_install(files: ProgramFiles, folder: str, ids: Mapping[str, str]) -> PythonInstall | None:
    documents: dict[str, bytes] = {}
    try:
        found, unread = python_install(folder, ids, documents)
        while unread:
            documents |= dict.fromkeys(unread, b"") | await files.read(unread)
            found, unread = python_install(folder, ids, documents)
    except ValueError as error:
        raise SandboxError(str(error)) from None
    return found


async def _node_project(files: ProgramFiles, folder: str, ids: Mapping[str, str]) -> NodeProject | None:
    documents: dict[str, bytes] = {}
    try:
        project = node_project(folder, ids.keys(), documents)
        while project is not None and project.unread:
            documents |= await files.read(project.unread)
            project = node_project(folder, ids.keys(), documents)
    except ValueError as error:
        raise SandboxError(str(error)) from None
    if project is not None and (wrong := (*project.outside, *project.problems)):
        raise SandboxError("\n".join(wrong))
    return project


def _below(top: str, path: str) -> str:
    relative = posixpath.relpath(path or ".", top or ".")
    return "" if relative == "." else relative


async def has_server_settings(read: Read, folder: str) -> bool:
    """Return whether the folder has a `gepa.toml`, or a `pyproject.toml` with a table `tool.gepa`."""
    files = await read(posixpath.join(folder, name) for name in (SERVER_SETTINGS, PYPROJECT))
    by_name = {posixpath.basename(path): content for path, content in files.items()}
    return SERVER_SETTINGS in by_name or b"tool.gepa" in by_name.get(PYPROJECT, b"")


async def _found(read: Read, folder: str, names: tuple[str, ...]) -> tuple[str, dict[str, bytes]]:
    """Return the folder that has any of them, and those it has."""
    for where in dict.fromkeys((folder, "")):
        files = await read(posixpath.join(where, name) for name in names)
        if files:
            return where, {posixpath.basename(path): content for path, content in files.items()}
    return "", {}


def _python_version(files: dict[str, bytes]) -> str | None:
    """Return the version in `.python-version`, else in `requires-python`; None if there is neither."""
    version_text = _first_line(files.get(PYTHON_VERSION, b""))
    if version_text:
        return version_text
    try:
        required = under(read_pyproject(PYPROJECT, files.get(PYPROJECT, b"")), "project", "requires-python")
    except ValueError as error:
        raise SandboxError(str(error)) from None
    return required if isinstance(required, str) else None


def _node_version(files: dict[str, bytes]) -> str | None:
    """Return the version in `.node-version` or `.nvmrc`, else in `engines.node`; None if there is none."""
    for name in _NODE_VERSION:
        version_text = _first_line(files.get(name, b"")).lower()
        if version_text in _ANY_NODE:
            return "*"
        if version_text:
            named = _NODE_NAMES.get(version_text.removeprefix("lts/"))
            return version_text if named is None else str(named)
    if PACKAGE_JSON not in files:
        return None
    try:
        document = json.loads(files[PACKAGE_JSON])
    except (ValueError, RecursionError) as error:
        raise SandboxError(f"package.json cannot be read: {error}") from None
    engines = document.get("engines") if isinstance(document, dict) else None
    required = engines.get("node") if isinstance(engines, dict) else None
    return required if isinstance(required, str) else None


def _first_line(content: bytes) -> str:
    lines = (line.partition("#")[0].strip() for line in content.decode("utf-8", "replace").splitlines())
    return next(filter(None, lines), "")
