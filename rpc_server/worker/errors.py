"""Exceptions of user code in the contract's form: type, message, and the traceback in the user's own files."""

from __future__ import annotations

import traceback
from types import TracebackType
from typing import Any, Iterator

from .code_origin import is_of_the_worker

_MAX_TEXT = 16_384
_MAX_MESSAGE = 4_096


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
        if not isinstance(error, TimeLimit):
            return _shortened("".join(_lines(error, set())))
        return _shortened("".join(traceback.format_list(_frames(error.__traceback__))))
    except BaseException as broken:  # noqa: BLE001  # an exception's attributes can be user code
        return "(its traceback cannot be read: %s)\n" % type(broken).__name__


def _lines(error: BaseException, seen: set[int]) -> Iterator[str]:
    seen.add(id(error))
    cause, context = error.__cause__, error.__context__
    if cause is not None and id(cause) not in seen:
        yield from _lines(cause, seen)
        yield "\nThe above exception was the direct cause of the following exception:\n\n"
    elif context is not None and not error.__suppress_context__ and id(context) not in seen:
        yield from _lines(context, seen)
        yield "\nDuring handling of the above exception, another exception occurred:\n\n"
    frames = _frames(error.__traceback__)
    if frames:
        yield "Traceback (most recent call last):\n"
        yield from frames.format()
    try:
        yield from traceback.format_exception_only(type(error), error)
    except Exception:  # noqa: BLE001  # `__str__` is user code
        yield type(error).__name__ + "\n"


def _frames(trace: TracebackType | None) -> traceback.StackSummary:
    frames = [frame for frame in traceback.extract_tb(trace) if not _is_worker_frame(frame.filename)]
    return traceback.StackSummary.from_list(frames)


def _is_worker_frame(filename: str) -> bool:
    is_import = filename.startswith("<frozen importlib") or "/importlib/" in filename
    return is_import or is_of_the_worker(filename)


def _shortened(text: str) -> str:
    if len(text) <= _MAX_TEXT:
        return text
    half = _MAX_TEXT // 2
    return "%s\n... %d characters left out ...\n%s" % (text[:half], len(text) - 2 * half, text[-half:])
