"""Watch the body of a model's response as the program reads it: its events, or its JSON, up to a bounded size."""

from __future__ import annotations

import collections
import functools
import re
import sys
from typing import Any, Callable

from .model_apis import StatedError, is_transient_code, parsed, stated_error

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
