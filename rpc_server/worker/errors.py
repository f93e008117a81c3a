"""Exceptions of user code in the contract's form, and whose code a frame runs."""

from __future__ import annotations

import os
import re
import traceback
from types import FrameType
from typing import Any

_MAX_TEXT = 16_384
_MAX_MESSAGE = 4_096
_HEAD_ALONE = re.compile(r"^Traceback \(most recent call last\):\n(?!  )", re.MULTILINE)


class TimeLimit(BaseException):
    """The example exceeded its time. Not an `Exception`, so that a program's `except Exception` does not catch it."""


class ProgramProblem(Exception):
    """The program is invalid; the message is for its author, `stage` the step that found it.

    With a cause, that is what is reported, with `evidence` at its end.
    """

    def __init__(self, stage: str, message: str, evidence: str | None = None) -> None:
        super().__init__(message)
        self.stage = stage
        self.evidence = evidence


class Cancelled(BaseException):
    """The server cancelled the request."""


class ContractError(Exception):
    """An error of the contract, returned unchanged."""

    def __init__(self, code: int, message: str, **data: Any) -> None:
        super().__init__(message)
        self.wire = {"code": code, "message": message, "data": {"retryable": False, **data}}


class ModelUnavailable(Exception):
    """A program returned although its last call of a model failed transiently; the message names both."""


class InvalidResult(Exception):
    """A program's result for one example is invalid; the message gives the reason."""


def describe(error: BaseException, evidence: str | None = None) -> dict[str, Any]:
    """Return `{type, message, traceback}`; the message is never empty, and ends with the evidence for its kind."""
    kind = type(error).__name__
    message = _message(error) or kind
    if evidence is not None:
        message = "%s [%s]" % (message, evidence)
    return {"type": kind, "message": message, "traceback": user_traceback(error)}


def _message(error: BaseException) -> str:
    try:
        text = "".join(str(error))  # a plain string, even if `__str__` returns a subclass
    except BaseException as broken:  # noqa: BLE001  # `__str__` is user code
        text = "(its message cannot be read: %s)" % type(broken).__name__
    return text if len(text) <= _MAX_MESSAGE else text[:_MAX_MESSAGE] + "..."


def user_traceback(error: BaseException) -> str:
    """Return the traceback without frames of this worker and the import system; a long one loses its middle."""
    try:
        shown = traceback.TracebackException(type(error), error, error.__traceback__)
        linked = [shown]
        for each in linked:  # it grows meanwhile
            each.stack[:] = [frame for frame in each.stack if not _is_worker_frame(frame.filename)]
            behind = (each.__cause__, each.__context__, *(getattr(each, "exceptions", None) or ()))
            linked += [one for one in behind if one is not None]
        if isinstance(error, TimeLimit):
            return _shortened("".join(shown.stack.format()))
        return _shortened(_HEAD_ALONE.sub("", "".join(shown.format())))
    except BaseException as broken:  # noqa: BLE001  # an exception's attributes can be user code
        return "(its traceback cannot be read: %s)\n" % type(broken).__name__


def _is_worker_frame(filename: str) -> bool:
    is_import = filename.startswith("<frozen importlib") or "/importlib/" in filename
    return is_import or is_of_the_worker(filename)


def _shortened(text: str) -> str:
    if len(text) <= _MAX_TEXT:
        return text
    half = _MAX_TEXT // 2
    return "%s\n... %d characters left out ...\n%s" % (text[:half], len(text) - 2 * half, text[-half:])


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
