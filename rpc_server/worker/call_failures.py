"""How a call failed: by its exception, or by what its response states, which is watched as the program reads it."""

from __future__ import annotations

import collections
import errno
import functools
import math
import os
import re
import socket
import sys
import time
from typing import Any, Callable, Iterator

from .model_apis import StatedError, is_transient_code, parsed, stated_error

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


_MAX_JSON = 4 << 20
"""Bytes of a JSON body that are kept to read it when it is complete; nothing is read of a longer one."""

_MAX_EVENT = 1 << 16
"""Bytes of an event that are kept until it is complete; what is longer is looked at in parts."""

_LAST = 16
"""Last parts of a stream, of one event or more, that are kept to see at its end how it ended."""

_EVENTS = re.compile(r"event-stream|ndjson|jsonl|json-seq|stream\+json", re.IGNORECASE)
_JSON = re.compile(r"json|^text/|^$", re.IGNORECASE)
HAS_AN_END = re.compile(rb'"(?:choices|message_start|response\.created|candidates)"|"created_at":.*"done"\s*:\s*false')
"""What streams of OpenAI, Anthropic, Gemini and Ollama show before their end."""

ENDS = [
    re.compile(mark)  # each begins with what occurs seldom, which is found fast
    for mark in (
        *(rb"\[DONE\]", rb'"finish_reason"\s*:\s*"', rb'"finishReason"\s*:\s*"', rb'"stop_reason"\s*:\s*"'),
        *(rb'"message_stop"', rb'"done"\s*:\s*true', rb'"response\.(?:completed|incomplete|failed|cancelled)"'),
    )
]
_ERROR = b"rror"
"""In `error` and `Error`: what does not have it states no error. `rfind` finds it faster than `in`."""

_AMAZON = "amazon.eventstream"
_EXCEPTION = re.compile(rb":exception-type\x07..(\w+)", re.DOTALL)


class Body:
    """The body of one response; this one states nothing.

    `error`: what it states. `is_cut`: it ended before its last event.
    """

    error: StatedError | None = None
    is_cut = False

    def feed(self, data: bytes) -> None:
        """Look at the next bytes."""

    def end(self) -> bytes:
        """Return the decoded bytes of a complete body that may be JSON; empty of a stream or a longer body."""
        return b""


UNREAD = Body()


def body_of(content_type: str, encoding: str) -> Body:
    """Return what reads a body of this type."""
    kind = _kind_of(content_type)
    if kind is _AmazonEvents:
        return kind()
    decode = _decoder(encoding) if encoding else bytes
    return UNREAD if kind is None or decode is None else kind(decode)


@functools.lru_cache(maxsize=64)
def _kind_of(content_type: str) -> Callable[..., Body] | None:
    if _AMAZON in content_type:
        return _AmazonEvents
    if _EVENTS.search(content_type):
        return _Events if "event-stream" in content_type.lower() else _Lines
    return _Json if _JSON.search(content_type) else None


class _Json(Body):
    _size = 0

    def __init__(self, decode: Callable[[bytes], bytes]) -> None:
        self._decode = decode
        self._chunks: list[bytes] = []

    def feed(self, data: bytes) -> None:
        self._size += len(data)
        if self._size <= _MAX_JSON:
            self._chunks.append(data)
        else:
            self._chunks = []

    def end(self) -> bytes:
        text = b"".join(self._chunks)
        if text and self._decode is not bytes:
            text = self._decode(text)
        if text.rfind(_ERROR) >= 0:
            self.error = stated_error(parsed(text))
        return text


class _Events(Body):
    _between: tuple[bytes, ...] = (b"\n\n", b"\r\n\r\n", b"\r\r")
    _needs_an_event = True
    _rest = b""
    _first = b""
    _has_ended = False

    def __init__(self, decode: Callable[[bytes], bytes]) -> None:
        self._decode = decode
        self._last: collections.deque[bytes] = collections.deque(maxlen=_LAST)

    def feed(self, data: bytes) -> None:
        data = self._decode(data)
        text = self._rest + data if self._rest else data
        end = len(text)
        if not text.endswith(self._between):
            at, length = max([(text.rfind(each), len(each)) for each in self._between])
            if at >= 0:
                end = at + length
            elif end < _MAX_EVENT:
                end = 0
            else:
                self._has_ended = self._has_ended or _shows_an_end(text)
        self._rest = text[end:]
        if end:
            self._take(text[:end])

    def end(self) -> bytes:
        if self._rest:
            self._take(self._rest)
        kept = b"\n".join((self._first, *self._last))
        if not self._has_ended and not _shows_an_end(kept):
            is_empty = b"data" not in kept and b"{" not in kept
            self.is_cut = (is_empty and self._needs_an_event) or HAS_AN_END.search(kept) is not None
        return b""

    def _take(self, text: bytes) -> None:
        """Look at complete events; one is parsed only if it may be an error."""
        self._first = self._first or text[:_MAX_EVENT]
        self._last.append(text)
        if text.rfind(_ERROR) >= 0:
            for event in re.split(b"|".join(self._between), text):
                self._read(event)

    def _read(self, event: bytes) -> None:
        is_error, data = False, []
        for line in event.splitlines():
            if line.startswith(b"event:"):
                is_error = line[6:].strip() == b"error"
            elif line.startswith(b"data:") or line.lstrip()[:1] == b"{":
                data.append(line[5:] if line.startswith(b"data:") else line)
        if is_error or b'"error"' in event:
            whole = parsed(b"\n".join(data))
            for answer in [whole] if whole is not None or is_error else map(parsed, data):
                self.error = self.error or stated_error(answer, in_stream=True, is_error=is_error)


class _Lines(_Events):
    _between = (b"\n",)
    _needs_an_event = False


class _AmazonEvents(Body):
    _rest = b""

    def feed(self, data: bytes) -> None:
        found = _EXCEPTION.search(self._rest + data)
        self._rest = b"" if found else data[-64:]
        if found:
            name = found.group(1).decode()
            self.error = StatedError(name, is_transient_code(name))


def _shows_an_end(text: bytes) -> bool:
    return any(mark.search(text) for mark in ENDS)


def _decoder(encoding: str) -> Callable[[bytes], bytes] | None:
    """Return what decodes the parts of a body, by the libraries that the client decodes it with; None if unknown."""
    name = encoding.strip().lower()
    if not name or name == "identity":
        return bytes
    library: Any
    if name in ("gzip", "x-gzip", "deflate") and (library := sys.modules.get("zlib")):
        return library.decompressobj(32 + 15 if name != "deflate" else 15).decompress  # type: ignore[no-any-return]
    if name == "br" and (library := sys.modules.get("brotli") or sys.modules.get("brotlicffi")):
        decoder = library.Decompressor()
        return getattr(decoder, "process", None) or decoder.decompress  # type: ignore[no-any-return]
    if name == "zstd" and (library := sys.modules.get("zstandard")):
        return library.ZstdDecompressor().decompressobj().decompress  # type: ignore[no-any-return]
    return None
