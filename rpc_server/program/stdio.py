"""What a program writes: lines of bounded length, JSON-RPC messages among them, and the tail of its log."""

import json
import math
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from rpc_server.rpc import wire

MAX_SHOWN_BYTES = 8 * 1024
"""What a failing example's `error.log` may hold."""


class LogTail:
    """Keeps the last bytes written, and counts them all, so that a reader can ask for what came since a moment."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self.total = 0
        """Bytes written so far."""

    def write(self, data: bytes) -> None:
        """Add to the end; the oldest bytes are let go."""
        self.total += len(data)
        self._kept += data[-MAX_SHOWN_BYTES:]
        if len(self._kept) > 2 * MAX_SHOWN_BYTES:
            del self._kept[:-MAX_SHOWN_BYTES]

    def since(self, mark: int = 0) -> str:
        """What was written after `total` was `mark`: its last `MAX_SHOWN_BYTES`."""
        wanted = min(self.total - mark, MAX_SHOWN_BYTES)
        return self._kept[-wanted:].decode("utf-8", "replace") if wanted > 0 else ""


_EDGE_BYTES = 512


@dataclass(frozen=True)
class LongLine:
    """A line of `size` bytes, more than `limit`, that was not kept, but for its beginning and its end."""

    size: int
    limit: int
    head: bytes
    tail: bytes


class LineSplitter:
    """Lines of at most `limit` bytes, out of chunks. `unfinished`: bytes of the line that has no end yet."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.unfinished = 0
        self._parts: list[bytes] = []
        self._head: bytes | None = None
        self._tail = b""

    def feed(self, chunk: bytes) -> Iterator[bytes | LongLine]:
        """The lines that end in this chunk, without their newlines and without empty ones."""
        first, *others = chunk.split(b"\n")
        self._add(first)
        for part in others:
            if self.unfinished:
                yield self._line()
            self._add(part)

    def _add(self, part: bytes) -> None:
        if not part:
            return
        self.unfinished += len(part)
        if self._head is None:
            self._parts.append(part)
            if self.unfinished <= self.limit:
                return
            whole = b"".join(self._parts)
            self._parts.clear()
            self._head, part = whole[:_EDGE_BYTES], whole
        self._tail = (self._tail + part)[-_EDGE_BYTES:]

    def _line(self) -> bytes | LongLine:
        line: bytes | LongLine
        line = (
            b"".join(self._parts)
            if self._head is None
            else LongLine(self.unfinished, self.limit, self._head, self._tail)
        )
        self._parts, self.unfinished, self._head, self._tail = [], 0, None, b""
        return line


_START = b'{"jsonrpc"'
_ANSWER = re.compile(rb'\{"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*([0-9]{1,15})\s*,\s*"(?:result|error)"')
_ID_AT_THE_END = re.compile(rb',\s*"id"\s*:\s*([0-9]{1,15})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')


class LenientMessage(dict[str, Any]):
    """A message that was JSON but for numbers or characters that JSON cannot hold."""


class UnreadableMessage(dict[str, Any]):
    """An answer of which no more can be read than the request it is for: it is no JSON, or nested too deep."""


class OversizedMessage(dict[str, Any]):
    """An answer of `size` bytes, more than `limit`, of which no more was read than the request it is for."""

    def __init__(self, number: int, size: int, limit: int) -> None:
        super().__init__(jsonrpc="2.0", id=number)
        self.size = size
        self.limit = limit


def request_line(number: int, method: str, params: dict[str, Any]) -> bytes:
    """One request with its newline."""
    return wire.write({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + b"\n"


def read_line(line: bytes) -> dict[str, Any] | None:
    """The message in a line of a program's stdout; None where the line is text that the program printed.

    A message that is JSON but for NaN, Infinity or lone surrogates is taken too: the numbers stay as they are, for the
    check of the result to name, the surrogates become U+FFFD. So is one behind text printed without a newline.
    An answer that cannot be read at all is an `UnreadableMessage`: as text it would leave its request waiting.
    """
    try:
        message = orjson.loads(line)
    except orjson.JSONDecodeError:
        message = _read_leniently(line)
    if message is None and (answer := _ANSWER.search(line)) is not None:
        return UnreadableMessage(jsonrpc="2.0", id=int(answer[1]))
    return message if isinstance(message, dict) and "jsonrpc" in message else None


def read_long_line(line: LongLine, pending: Collection[int]) -> OversizedMessage | None:
    """The answer that a line too long to be kept is, to one of the `pending` requests; None where it names none."""
    found = _ANSWER.search(line.head) or _ID_AT_THE_END.search(line.tail)
    number = int(found[1]) if found is not None else None
    return OversizedMessage(number, line.size, line.limit) if number is not None and number in pending else None


def _read_leniently(line: bytes) -> Any:
    start = line.find(_START)
    if start < 0:
        return None
    try:
        message = _sanitized(json.loads(line[start:]))
    except (ValueError, RecursionError):
        return None
    return LenientMessage(message) if isinstance(message, dict) else None


def _sanitized(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_sanitized(key): _sanitized(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_sanitized(member) for member in value]
    return value


def find_non_finite(value: Any, path: str) -> str | None:
    """Where a value holds NaN or an infinity, which leave as neither; None where all is well."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"{path} is {'NaN' if math.isnan(value) else 'infinite'}, which JSON cannot hold"
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        found = find_non_finite(member, f"{path}[{key}]" if isinstance(value, list) else f"{path}.{key}")
        if found is not None:
            return found
    return None
