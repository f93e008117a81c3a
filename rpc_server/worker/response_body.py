"""Watch the body of a model's response as the program reads it: its events, or its JSON, up to a bounded size."""

from __future__ import annotations

import re
import sys
from typing import Any, Callable

from .model_apis import StatedError, is_transient_code, parsed, stated_error

_MAX_JSON = 4 << 20
"""Bytes of a JSON body that are kept to read it when it is complete; nothing is read of a longer one."""

_MAX_LINE = 1 << 16
"""Bytes of a line in a stream that are kept until the line is complete."""

_EVENTS = re.compile(r"event-stream|ndjson|jsonl|json-seq|stream\+json", re.IGNORECASE)
_AMAZON = "amazon.eventstream"
_EXCEPTION = re.compile(rb":exception-type\x07..(\w+)", re.DOTALL)


class ResponseBody:
    """The body of one response. `error`: what it states, as soon as it does."""

    def __init__(self, content_type: str, encoding: str) -> None:
        self.error: StatedError | None = None
        self._decode = _decoder(encoding)
        self._rest = b""
        self._chunks: list[bytes] | None = None
        self._size = 0
        self._is_error_event = False
        self._skips = False
        self._read: Callable[[ResponseBody, bytes], None] | None = (
            None  # unbound: a bound method would make a cycle of references
        )
        if _AMAZON in content_type:
            self._read = ResponseBody._read_amazon
        elif _EVENTS.search(content_type):
            self._skips = self._decode is bytes
            self._read = ResponseBody._read_lines if self._skips else ResponseBody._read_encoded
        elif "json" in content_type or not content_type:
            self._chunks = []
            self._read = ResponseBody._keep

    def skips(self, data: bytes) -> bool:
        """Return whether there is nothing to look at in the next bytes, as in nearly all events."""
        return self._skips and not self._rest and b"rror" not in data and data.endswith(b"\n")

    def feed(self, data: bytes) -> None:
        """Look at the next bytes."""
        if self._read is not None:
            self._read(self, data)

    def skip_decoding(self) -> None:
        """Read what follows as it is: the client has decoded it."""
        self._decode = bytes

    def _keep(self, data: bytes) -> None:
        if self._chunks is not None:
            self._size += len(data)
            self._chunks.append(data)
            if self._size > _MAX_JSON:
                self._chunks = None

    def _read_encoded(self, data: bytes) -> None:
        if self._decode is not None:
            self._read_lines(self._decode(data))

    def end(self) -> Any:
        """Return the JSON value of the complete body; None of a stream, or if it cannot be read."""
        if self._chunks is None:
            if self._rest:
                self._read_lines(b"\n")
            return None
        text = b"".join(self._chunks)
        answer = parsed(self._decode(text)) if text and self._decode is not None else None
        self.error = stated_error(answer)
        return answer

    def _read_lines(self, data: bytes) -> None:
        """Look at complete lines; one is parsed only if it may be an error."""
        text = self._rest + data if self._rest else data
        if b"rror" not in text and not self._is_error_event:
            self._rest = b"" if text.endswith(b"\n") else text[text.rfind(b"\n") + 1 :][:_MAX_LINE]
            return
        *lines, rest = text.split(b"\n")
        self._rest = rest[:_MAX_LINE]
        for line in lines:
            self._read_line(line.strip())

    def _read_line(self, line: bytes) -> None:
        if line.startswith(b"event:"):
            self._is_error_event = line[6:].strip() == b"error"
            self._skips = not self._is_error_event and self._decode is bytes
        elif line and (self._is_error_event or b'"error"' in line):
            given = line[5:] if line.startswith(b"data:") else line
            is_error, self._is_error_event, self._skips = self._is_error_event, False, self._decode is bytes
            self.error = self.error or stated_error(parsed(given), in_stream=True, is_error=is_error)

    def _read_amazon(self, data: bytes) -> None:
        found = _EXCEPTION.search(self._rest + data)
        self._rest = b"" if found else data[-64:]
        if found:
            name = found.group(1).decode()
            self.error = StatedError(name, is_transient_code(name))


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
