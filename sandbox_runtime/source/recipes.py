"""Derive a recipe from a program's manifests."""

import json
import posixpath
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from evolverpc_common.node_package_managers import PACKAGE_JSON, node_install
from evolverpc_common.python_package_managers import (
    PYPROJECT,
    PYTHON_VERSION,
    folders_above,
    python_install,
    read_toml,
    under,
)
from sandbox_runtime.api.sandbox import SandboxError
from sandbox_runtime.api.spec import Recipe
from sandbox_runtime.environments.python import OLDEST

_PYTHON_VERSION = (PYTHON_VERSION, PYPROJECT)
_NODE_VERSION = (".node-version", ".nvmrc")
_ANY_NODE = {"node", "stable", "current", "latest", "lts/*", "lts"}
_NODE_NAMES = {"argon": 4, "boron": 6, "carbon": 8, "dubnium": 10, "erbium": 12, "fermium": 14, "gallium": 16}
_NODE_NAMES |= {"hydrogen": 18, "iron": 20, "jod": 22, "krypton": 24}
"""Releases of Node with long support, by the names that `.nvmrc` gives them: `lts/iron`."""

T = TypeVar("T")
Choose = Callable[[str, Mapping[str, str], Mapping[str, bytes]], tuple[T | None, set[str]]]


class ProgramFiles(Protocol):
    """The files of a program's repository; paths are from its top."""

    async def read(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Return those of these files that exist. Raises `SandboxError`."""
        ...

    async def ids(self) -> Mapping[str, str]:
        """Return the ids of the contents of all files, by path. Raises `SandboxError`."""
        ...


async def program_needs(files: ProgramFiles, folder: str) -> Recipe:
    """Return what the program in a folder needs, by the manifests there, else above it.

    A program without any manifest gets a Python all the same.

    Raises:
        SandboxError: a manifest cannot be read, or names a tool that is not known here.
    """
    ids = await files.ids()
    install = await _chosen(python_install, files, folder, ids)
    node_install_ = await _chosen(node_install, files, folder, ids)
    python_version = await _found(files, folder if install is None else install.folder, _PYTHON_VERSION)
    python_wanted = _python_version(python_version)
    node_wanted = _node_version(await _found(files, folder, (*_NODE_VERSION, PACKAGE_JSON)))
    if not (install or node_install_ or python_wanted or node_wanted):
        python_wanted = OLDEST
    return Recipe(python=python_wanted, node=node_wanted, install=install, node_install=node_install_)


async def _chosen(choose: Choose[T], files: ProgramFiles, folder: str, ids: Mapping[str, str]) -> T | None:
    documents: dict[str, bytes] = {}
    try:
        found, unread = choose(folder, ids, documents)
        while unread:
            documents |= dict.fromkeys(unread, b"") | await files.read(unread)
            found, unread = choose(folder, ids, documents)
    except ValueError as error:
        raise SandboxError(str(error)) from None
    return found


async def _found(files: ProgramFiles, folder: str, names: tuple[str, ...]) -> dict[str, bytes]:
    """Return the nearest of each of these files, in the folder or above it, by name."""
    paths = {name: [posixpath.join(where, name) for where in folders_above(folder)] for name in names}
    read = await files.read(path for each in paths.values() for path in each)
    nearest = ((name, next((path for path in each if path in read), None)) for name, each in paths.items())
    return {name: read[path] for name, path in nearest if path is not None}


def _python_version(files: dict[str, bytes]) -> str | None:
    """Return the version in `.python-version`, else in `requires-python`; None if there is neither."""
    version_text = _first_line(files.get(PYTHON_VERSION, b""))
    if version_text:
        return version_text
    try:
        required = under(read_toml(PYPROJECT, files.get(PYPROJECT, b"")), "project", "requires-python")
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
