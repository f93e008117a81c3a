"""What a commit says it needs installed: the files that say so, and a digest that changes when that does."""

import hashlib
import json
import posixpath
import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rpc_server.worktrees.repository import Repository

Language = Literal["python", "node"]

REQUIREMENTS = "requirements.txt"

_FILES: dict[Language, tuple[str, ...]] = {
    "python": (REQUIREMENTS, "pyproject.toml", "uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock"),
    "node": ("package.json", "package-lock.json", "npm-shrinkwrap.json", ".npmrc"),
}
_INCLUDE = re.compile(r"^\s*(?:-r|-c|--requirement|--constraint)(?:\s+|=|(?=\S))(?P<path>\S+)", re.MULTILINE)
"""A line of a requirements file that takes in another one."""


@dataclass(frozen=True)
class Manifest:
    """Files of one language, by their paths in the repository, and the digest of what they ask for.

    `folder`: where they are, the program's own, else the repository's top (`""`).
    """

    language: Language
    folder: str
    files: dict[str, bytes]
    digest: str


def manifests_of(repository: Repository, commit: str, objects: Path | None = None) -> dict[Language, Manifest]:
    """What the commit, which may be in `objects`, needs for each language; no files where it says nothing of it."""
    paths = set(repository.files(commit, objects))

    def read(wanted: Iterable[str]) -> dict[str, bytes]:
        return repository.read_all(commit, wanted, objects)

    return {language: _manifest(language, repository.prefix, paths, read) for language in _FILES}


def _manifest(
    language: Language, prefix: str, paths: set[str], read: Callable[[Iterable[str]], dict[str, bytes]]
) -> Manifest:
    for folder in dict.fromkeys((prefix, "")):
        wanted = {posixpath.join(folder, name) for name in _FILES[language]} & paths
        found: dict[str, bytes] = {}
        while wanted:
            more = read(wanted)
            found |= more
            wanted = (_included(more) & paths) - found.keys()
        if found:
            return Manifest(language, folder, found, _digest(found))
    return Manifest(language, "", {}, "")


def _included(files: dict[str, bytes]) -> set[str]:
    return {
        posixpath.normpath(posixpath.join(posixpath.dirname(path), line["path"]))
        for path, content in files.items()
        if path.endswith(".txt")
        for line in _INCLUDE.finditer(content.decode("utf-8", "replace"))
    }


def _digest(files: dict[str, bytes]) -> str:
    digest = hashlib.sha256()
    for path, content in sorted(files.items()):
        said = _needs(posixpath.basename(path), content)
        digest.update(f"{path} {len(said)}\n".encode("utf-8", "surrogateescape"))
        digest.update(said)
    return digest.hexdigest()[:24]


def _needs(name: str, content: bytes) -> bytes:
    """The part of a file that is about what is installed; all of it where that cannot be told apart."""
    if name not in _TABLES:
        return content
    read, keys = _TABLES[name]
    try:
        document = read(content.decode())
    except (ValueError, RecursionError):  # no TOML, no JSON, or nested too deep
        return content
    if not isinstance(document, dict):
        return content
    said = {key: _under(document, key.split(".")) for key in keys}
    return json.dumps(said, sort_keys=True, default=str).encode()


def _under(document: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document


_TABLES: dict[str, tuple[Callable[[str], Any], tuple[str, ...]]] = {
    "pyproject.toml": (
        tomllib.loads,
        (
            *("project.dependencies", "project.optional-dependencies", "project.requires-python", "project.dynamic"),
            *("dependency-groups", "build-system", "tool.uv", "tool.poetry.dependencies", "tool.poetry.group"),
        ),
    ),
    "package.json": (
        json.loads,
        (
            *("dependencies", "devDependencies", "optionalDependencies", "peerDependencies", "overrides"),
            *("engines", "workspaces", "packageManager"),
        ),
    ),
}
