"""Whose code a frame runs: the program's, an installed package's, the standard library's or the worker's."""

from __future__ import annotations

import os
from types import FrameType

_STANDARD_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_WORKER = os.path.dirname(os.path.abspath(__file__)) + os.sep
_FOLDERS = (os.sep + "site-packages" + os.sep, os.sep + "dist-packages" + os.sep)
_TRANSPORTS = {"httpx", "httpx2", "httpcore", "httpcore2", "aiohttp", "urllib3", "requests", "anyio"}
"""Packages that only hand on calls of others."""


def is_installed(path: str) -> bool:
    """Return whether a file is of an installed package."""
    return any(folder in path for folder in _FOLDERS)


def is_of_the_standard_library(path: str) -> bool:
    """Return whether a file is of the standard library."""
    return path.startswith(_STANDARD_LIBRARY) and not is_installed(path)


def is_of_the_worker(path: str) -> bool:
    """Return whether a file is of the worker."""
    return path.startswith(_WORKER)


def calling_package(frame: FrameType | None) -> str | None:
    """Return the installed package whose code makes the call that a frame is a part of; None if the program does."""
    while frame is not None:
        path, package = frame.f_code.co_filename, str(frame.f_globals.get("__name__")).partition(".")[0]
        is_between = path.startswith("<") or is_of_the_standard_library(path) or is_of_the_worker(path)
        if not is_between and package not in _TRANSPORTS:
            return package if is_installed(path) else None
        frame = frame.f_back
    return None
