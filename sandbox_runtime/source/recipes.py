"""Derive a recipe from a program's manifests."""

import json
import posixpath
import re
import tomllib
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Protocol

from evolverpc_common.node_packages import NODE_MANIFESTS, PACKAGE_JSON, NodeProject, node_project
from evolverpc_common.package_managers import INCLUDED_REQUIREMENTS, PYPROJECT, REQUIREMENTS
from sandbox_runtime.api.sandbox import SandboxError
from sandbox_runtime.api.spec import Recipe
from sandbox_runtime.environments.python import OLDEST

SERVER_SETTINGS = "gepa.toml"

_PYTHON = (REQUIREMENTS, PYPROJECT, "uv.lock")
_PYTHON_VERSION = (".python-version",)
_NODE_VERSION = (".node-version", ".nvmrc")
_MOST_INCLUDED = 50
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

    async def paths(self) -> Collection[str]:
        """Return the paths of all files. Raises `SandboxError`."""
        ...


@dataclass(frozen=True)
class ProgramNeeds:
    """A program's recipe.

    `node_folder`: the folder of the repository that the recipe's Node packages are relative to, None if it has none.
    """

    recipe: Recipe
    node_folder: str | None


async def program_needs(files: ProgramFiles, folder: str) -> ProgramNeeds:
    """Return what the program in a folder needs, by the manifests there, else at the top.

    A program without any manifest gets a Python all the same. Files keep their names in the recipe, those of Node their
    paths from `node_folder`; those that `requirements.txt` includes are renamed, because they may be in any folder.

    Raises:
        SandboxError: a manifest cannot be read, or names a package that no sandbox can have.
    """
    python_folder, python = await _found(files.read, folder, _PYTHON)
    _, node = await _found(files.read, folder, NODE_MANIFESTS)
    _, python_version = await _found(files.read, folder, _PYTHON_VERSION)
    _, node_version = await _found(files.read, folder, _NODE_VERSION)
    python_wanted = _python_version(python | python_version)
    node_wanted = _node_version(node | node_version)
    if REQUIREMENTS in python:
        python |= await _with_included(files.read, python_folder, python[REQUIREMENTS])
    project = await _node_project(files, folder) if PACKAGE_JSON in node else None
    if project is None:
        if not (python or python_wanted or node_wanted):
            python_wanted = OLDEST
        return ProgramNeeds(Recipe(python=python_wanted, node=node_wanted, files=python), None)
    top = posixpath.commonpath(project.folders) if len(project.folders) > 1 else project.root
    manifests = await files.read(project.manifests(await files.paths()))
    recipe = Recipe(
        python=python_wanted,
        node=node_wanted,
        files=python | {_below(top, path): content for path, content in manifests.items()},
        node_folders=tuple(_below(top, where) for where in (project.root, *project.alone)),
    )
    return ProgramNeeds(recipe, top)


async def _node_project(files: ProgramFiles, folder: str) -> NodeProject | None:
    paths = await files.paths()
    documents: dict[str, bytes] = {}
    try:
        project = node_project(folder, paths, documents)
        while project is not None and project.unread:
            documents |= await files.read(project.unread)
            project = node_project(folder, paths, documents)
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


async def _with_included(read: Read, folder: str, first: bytes) -> dict[str, bytes]:
    """Return the requirements file and all files it includes, renamed; missing ones are left to pip."""
    names = {posixpath.normpath(posixpath.join(folder, REQUIREMENTS)): REQUIREMENTS}
    contents = dict.fromkeys(names, first)
    waiting = list(names)
    while waiting:
        including = waiting.pop()
        lines = INCLUDED_REQUIREMENTS.finditer(contents[including].decode("utf-8", "replace"))
        wanted = {_path_in(including, line["path"]) for line in lines} - names.keys()
        inside = [path for path in wanted if not path.startswith(("/", "../"))]
        for path, content in (await read(inside)).items():
            names[path] = f"included-{len(names)}.txt"
            contents[path] = content
            waiting.append(path)
        if len(names) > _MOST_INCLUDED:
            raise SandboxError(f"{REQUIREMENTS} takes in more than {_MOST_INCLUDED} files")
    return {names[path]: _renamed(path, content, names) for path, content in contents.items()}


def _renamed(path: str, content: bytes, names: dict[str, str]) -> bytes:
    def named(line: re.Match[str]) -> str:
        return f"{line['option']} {names.get(_path_in(path, line['path']), line['path'])}"

    return INCLUDED_REQUIREMENTS.sub(named, content.decode("utf-8", "surrogateescape")).encode(
        "utf-8", "surrogateescape"
    )


def _path_in(including: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(including), path))


def _python_version(files: dict[str, bytes]) -> str | None:
    """Return the version in `.python-version`, else in `requires-python`; None if there is neither."""
    version_text = _first_line(files.get(".python-version", b""))
    if version_text:
        return version_text
    if "pyproject.toml" not in files:
        return None
    try:
        project = tomllib.loads(files["pyproject.toml"].decode()).get("project", {})
    except (ValueError, RecursionError) as error:
        raise SandboxError(f"pyproject.toml cannot be read: {error}") from None
    required = project.get("requires-python") if isinstance(project, dict) else None
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
