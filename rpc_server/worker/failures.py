"""Exceptions of user code as the contract tells them: whose fault, and where in the user's own files."""

from __future__ import annotations

import errno
import os
import traceback
from types import TracebackType
from typing import Any, Iterable, Iterator

_OWN_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep
_MAX_TEXT = 16_384
_MAX_MESSAGE = 4_096

DEFAULT_TRANSIENT = (
    "openai.RateLimitError",
    "openai.APIConnectionError",
    "openai.APITimeoutError",
    "openai.InternalServerError",
    "anthropic.RateLimitError",
    "anthropic.APIConnectionError",
    "anthropic.APITimeoutError",
    "anthropic.InternalServerError",
    "anthropic.OverloadedError",
    "litellm.RateLimitError",
    "litellm.Timeout",
    "litellm.ServiceUnavailableError",
    "litellm.APIConnectionError",
    "litellm.InternalServerError",
    "dspy.LMRateLimitError",
    "dspy.LMTimeoutError",
    "dspy.LMServerError",
    "dspy.LMTransportError",
    "dspy.LMLockTimeoutError",
    "httpx.TransportError",
    "ConnectionError",
)
"""Types of exception that say nothing about the candidate: a provider's rate limit or outage."""


class TimeLimit(BaseException):
    """The example ran out of time. Not an `Exception`, so that a program's own `except Exception` lets it pass."""


class ProgramProblem(Exception):
    """The program is not as it must be, in words for its author; `stage` says at which step that showed."""

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(message)
        self.stage = stage


class Cancelled(BaseException):
    """The server asked to stop."""


class Refusal(Exception):
    """An error of the contract, to be answered as it is."""

    def __init__(self, code: int, message: str, **data: Any) -> None:
        super().__init__(message)
        self.wire = {"code": code, "message": message, "data": {"retryable": False, **data}}


class InvalidResult(Exception):
    """A program's answer for one example cannot be used; the message says why."""


def is_transient(error: BaseException, names: Iterable[str]) -> bool:
    """True for a failure that is nobody's fault: its `retryable` says so, else the name of its type does.

    `names` are dotted, as the user imports them: `pkg.Name` also means a `Name` defined deeper inside `pkg`. Nothing is
    imported to find out. A `TimeoutError` counts where the operating system raised it: one without an error number may
    be the program's own limit.
    """
    try:
        retryable = getattr(error, "retryable", None)
    except BaseException:  # noqa: BLE001  # a property is user code
        retryable = None
    if isinstance(retryable, bool):
        return retryable
    names = tuple(names)
    if isinstance(error, TimeoutError) and error.errno == errno.ETIMEDOUT and "ConnectionError" in names:
        return True
    return any(_is_named(kind, name) for kind in type(error).__mro__ for name in names)


def _is_named(kind: type, name: str) -> bool:
    package, _, short = name.rpartition(".")
    package = package or "builtins"
    return kind.__qualname__ == short and (kind.__module__ == package or kind.__module__.startswith(package + "."))


def describe(error: BaseException) -> dict[str, Any]:
    """`{type, message, traceback}`; the message is never empty."""
    kind = type(error).__name__
    return {"type": kind, "message": _message(error) or kind, "traceback": user_traceback(error)}


def _message(error: BaseException) -> str:
    try:
        text = "".join(str(error))  # a plain string, whatever `__str__` made of its own
    except BaseException as broken:  # noqa: BLE001  # `__str__` is user code
        text = "(its message cannot be read: %s)" % type(broken).__name__
    return text if len(text) <= _MAX_MESSAGE else text[:_MAX_MESSAGE] + "..."


def user_traceback(error: BaseException) -> str:
    """The traceback without the frames of this worker and the import system; a long one loses its middle."""
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
    frames = [frame for frame in traceback.extract_tb(trace) if not _is_ours(frame.filename)]
    return traceback.StackSummary.from_list(frames)


def _is_ours(filename: str) -> bool:
    return filename.startswith((_OWN_FOLDER, "<frozen importlib")) or "/importlib/" in filename


def _shortened(text: str) -> str:
    if len(text) <= _MAX_TEXT:
        return text
    half = _MAX_TEXT // 2
    return "%s\n... %d characters left out ...\n%s" % (text[:half], len(text) - 2 * half, text[-half:])
