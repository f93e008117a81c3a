"""A digest of the program's own code and settings, which tells that a program without a version has changed."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
from types import ModuleType
from typing import Any

_INSTALLED = ("site-packages", "dist-packages")
_ENVIRONMENT = "pyvenv.cfg"
_STANDARD_LIBRARY = os.path.dirname(os.path.realpath(os.__file__))
_OWN_PACKAGE = __name__.partition(".")[0]


def digest_of(settings: Any, root: str, entry: ModuleType | None) -> str:
    """SHA-256, in hexadecimal, over `settings` (JSON) and the files of the modules that are the program's own.

    Its own are those loaded so far that lie under `root` or in the folder of `entry`, the module it starts from; never
    installed packages, environments or the standard library. The same files under another root give the same digest.
    """
    digest = hashlib.sha256()
    _add(digest, "settings", json.dumps(settings, sort_keys=True).encode())
    for name, path in sorted(_own_files(_own_folders(root, entry), entry).items()):
        _add(digest, name, _content(path))
    return digest.hexdigest()


def _add(digest: Any, name: str, content: bytes) -> None:
    """With lengths, so that no two lists of files look the same."""
    head = name.encode("utf-8", "surrogateescape")
    digest.update(b"%d %d\n" % (len(head), len(content)))
    digest.update(head)
    digest.update(content)


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""  # gone since, or in an archive: that there is such a module is told by its name


def _own_folders(root: str, entry: ModuleType | None) -> list[str]:
    folders = [os.path.abspath(root)]
    path = _file_of(entry)
    if path is not None:
        folder = os.path.dirname(path)
        for _ in (getattr(entry, "__package__", None) or "").split(".")[1:]:
            folder = os.path.dirname(folder)  # that of the outermost package
        if not _is_foreign(folder):
            folders.append(folder)
    return folders


def _own_files(folders: list[str], entry: ModuleType | None) -> dict[str, str]:
    """Path as seen from the first folder that holds the file -> where it is."""
    found = {}
    for name, module in list(sys.modules.items()):
        path = _file_of(module)
        if path is None or name.partition(".")[0] == _OWN_PACKAGE:
            continue
        inside = next((inside for inside in (_inside(folder, path) for folder in folders) if inside), None)
        if inside is not None:
            found[inside] = path
        elif module is entry:  # installed, but still what this is about
            found[os.path.basename(path)] = path
    return found


def _file_of(module: Any) -> str | None:
    if not issubclass(type(module), ModuleType):  # a library of cffi has the class of a module and no `__dict__`
        return None
    # Past what a module may have for looking up its attributes, which may import what was put off.
    file = object.__getattribute__(module, "__dict__").get("__file__")
    return os.path.abspath(file) if isinstance(file, str) else None


def _inside(folder: str, path: str) -> str | None:
    """The path from the folder down to the file; None where there is none, or it leads through what is foreign."""
    above = folder.rstrip(os.sep) + os.sep
    if not path.startswith(above):
        return None
    parts = path[len(above) :].split(os.sep)
    if any(_is_foreign(os.path.join(folder, *parts[:depth])) for depth in range(1, len(parts))):
        return None
    return "/".join(parts)


@functools.lru_cache(maxsize=None)
def _is_foreign(folder: str) -> bool:
    return (
        os.path.basename(folder) in _INSTALLED
        or os.path.realpath(folder) == _STANDARD_LIBRARY
        or os.path.isfile(os.path.join(folder, _ENVIRONMENT))
    )
