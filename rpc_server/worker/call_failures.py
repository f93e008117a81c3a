"""How a call without a complete response failed, and how long its host asked to wait."""

from __future__ import annotations

import errno
import math
import os
import re
import socket
import time
from typing import Any, Iterator

_NOT_THE_NETWORKS = re.compile(r"Invalid|Local|Unsupported|Cannot|NotReady|Decod|Redirect|ContentType|Location|Header")
"""Parts of the names of exceptions by which a client refuses a request or a response that arrived."""

_NETWORK_ERRNOS = {
    getattr(errno, name)
    for name in (
        *("ECONNREFUSED", "ECONNRESET", "ECONNABORTED", "EPIPE", "ETIMEDOUT", "ENETDOWN", "ENETUNREACH", "ENETRESET"),
        *("EHOSTDOWN", "EHOSTUNREACH"),
    )
    if hasattr(errno, name)
}
_NETWORK_TEXTS = (
    *(os.strerror(number) for number in sorted(_NETWORK_ERRNOS)),
    *("Name or service not known", "Temporary failure in name resolution"),  # of `getaddrinfo`
    "server closed the connection unexpectedly",  # of libpq
)
_TIMEOUT_NAMES = ("socket.timeout", "asyncio.TimeoutError", "concurrent.futures.TimeoutError")  # before Python 3.11
_MAX_CHAIN = 16


def is_transient_problem(problem: BaseException) -> bool:
    """Return whether an exception of a client's transport is a failure of the network or of the host."""
    kind = type(problem)
    if not issubclass(kind, Exception) or _NOT_THE_NETWORKS.search(kind.__name__):
        return False
    return kind.__module__ != "builtins" or issubclass(kind, (OSError, EOFError))


def is_network_error(kind: type) -> bool:
    """Return whether a class of the standard library, or one derived from it, is of errors of the network alone."""
    return issubclass(kind, (socket.gaierror, socket.herror)) or _is_named(
        kind, "ssl.SSLError", "http.client.IncompleteRead", "asyncio.IncompleteReadError"
    )


def has_network_errno(number: Any) -> bool:
    """Return whether an `errno` is of the network."""
    return number in _NETWORK_ERRNOS


def network_text_in(text: str) -> bool:
    """Return whether a message has the operating system's text for an error of the network, as native clients have."""
    return any(each in text for each in _NETWORK_TEXTS)


def is_timeout(kind: type) -> bool:
    """Return whether a class is of time-outs of the standard library."""
    return issubclass(kind, TimeoutError) or _is_named(kind, *_TIMEOUT_NAMES)


def reason_of(problem: BaseException) -> str:
    """Return how a call failed, in words, by what was raised and what that came from."""
    chain = list(_chain(problem))
    for error in chain:
        kind = type(error)
        if issubclass(kind, ConnectionRefusedError):
            return "connection refused"
        if issubclass(kind, socket.gaierror):
            return "host name not found"
        if is_timeout(kind) or "Timeout" in kind.__name__:
            return "timed out"
    for error in chain:
        kind = type(error)
        if issubclass(kind, (ConnectionError, EOFError)) or re.search(
            r"Disconnect|IncompleteRead|Payload|Remote|Protocol|ReadError|Chunk", kind.__name__
        ):
            return "cut off"
        if _is_named(kind, "ssl.SSLError"):
            return "TLS"
    return type(problem).__name__


def retry_after_s(headers: Any) -> float | None:
    """Return the seconds that a response asks to wait; None if it states none."""
    for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        stated = headers.get(name)
        if stated is None:
            continue
        try:
            seconds = float(stated) / scale
        except ValueError:
            seconds = _seconds_until(stated)
        if math.isfinite(seconds):
            return max(0.0, seconds)
    return None


def _seconds_until(date: str) -> float:
    import email.utils  # costs some milliseconds, and few hosts state a date

    found = email.utils.parsedate_tz(date)
    return math.nan if found is None else email.utils.mktime_tz(found) - time.time()


def _chain(problem: BaseException) -> Iterator[BaseException]:
    error: BaseException | None = problem
    for _ in range(_MAX_CHAIN):
        if error is None:
            return
        yield error
        behind = error.__cause__ or error.__context__
        if behind is None:
            behind = next((part for part in error.args if issubclass(type(part), BaseException)), None)
        error = behind


def _is_named(kind: type, *names: str) -> bool:
    return any("%s.%s" % (base.__module__, base.__qualname__) in names for base in kind.__mro__)
