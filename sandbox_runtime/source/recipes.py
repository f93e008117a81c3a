"""Derive a recipe from a program's manifests."""

import json
import posixpath
import re
import tomllib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from evolverpc_common.package_managers import INCLUDED_REQUIREMENTS
from sandbox_runtime.api.sandbox import SandboxError
from sandbox_runtime.api.spec import Recipe
from sandbox_runtime.environments.python import OLDEST

REQUIREMENTS = "requirements.txt"
PACKAGES = "package.json"

_PYTHON = (REQUIREMENTS, "pyproject.toml", "uv.lock")
_NODE = (PACKAGES, "package-lock.json", "npm-shrinkwrap.json", ".npmrc")
_PYTHON_VERSION = (".python-version",)
_NODE_VERSION = (".node-version", ".nvmrc")
_MOST_INCLUDED = 50
_ANY_NODE = {"node", "stable", "current", "latest", "lts/*", "lts"}
_NODE_NAMES = {"argon": 4, "boron": 6, "carbon": 8, "dubnium": 10, "erbium": 12, "fermium": 14, "gallium": 16}
_NODE_NAMES |= {"hydrogen": 18, "iron": 20, "jod": 22, "krypton": 24}
"""Releases of Node with long support, by the names that `.nvmrc` gives them: `lts/iron`."""

Read = Callable[[Iterable[str]], Awaitable[dict[str, bytes]]]
"""Returns those files of a program that exist, by their paths from the repository's top."""


@dataclass(frozen=True)
class ProgramNeeds:
    """A program's recipe. `node_folder`: the folder of its `package.json` in the repository, None if it has none."""

    recipe: Recipe
    node_folder: str | None


async def program_needs(read: Read, folder: str) -> ProgramNeeds:
    """Return what the program in a folder needs, by the manifests there, else at the top.

    A program without any manifest gets a Python all the same. Files keep their names in the recipe; those that
    `requirements.txt` includes are renamed, because they may be in any folder.

    Raises:
        SandboxError: a manifest cannot be read.
    """
    python_folder, python = await _found(read, folder, _PYTHON)
    node_folder, node = await _found(read, folder, _NODE)
    _, python_version = await _found(read, folder, _PYTHON_VERSION)
    _, node_version = await _found(read, folder, _NODE_VERSION)
    files = python | node
    if REQUIREMENTS in python:
        files |= await _with_included(read, python_folder, python[REQUIREMENTS])
    python_wanted = _python_version(python | python_version)
    node_wanted = _node_version(node | node_version)
    if not (files or python_wanted or node_wanted):
        python_wanted = OLDEST
    recipe = Recipe(python=python_wanted, node=node_wanted, files=files)
    return ProgramNeeds(recipe, node_folder if PACKAGES in files else None)


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
    if PACKAGES not in files:
        return None
    try:
        document = json.loads(files[PACKAGES])
    except (ValueError, RecursionError) as error:
        raise SandboxError(f"package.json cannot be read: {error}") from None
    engines = document.get("engines") if isinstance(document, dict) else None
    required = engines.get("node") if isinstance(engines, dict) else None
    return required if isinstance(required, str) else None


def _first_line(content: bytes) -> str:
    lines = (line.partition("#")[0].strip() for line in content.decode("utf-8", "replace").splitlines())
    return next(filter(None, lines), "")
