"""What a program writes: lines of bounded length, JSON-RPC messages among them."""

import json
import math
import re
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from evolverpc_common.exact_values import has_long_integers, loads
from rpc_server.rpc import wire

LOG_TAIL_BYTES = 8 * 1024
"""Bytes of `log_tail`."""

_EDGE_BYTES = 512


@dataclass(frozen=True)
class LongLine:
    """A line of `size` bytes, more than `limit`, of which only the head and tail were kept."""

    size: int
    limit: int
    head: bytes
    tail: bytes


class LineSplitter:
    """Splits chunks into lines of at most `limit` bytes; of a longer one it keeps both ends."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._kept = bytearray()
        self._dropped = 0
        self.fed_at = 0.0
        """When it got the last chunk, as `time.monotonic` counts."""

    @property
    def unfinished(self) -> int:
        """The bytes of the incomplete line."""
        return len(self._kept) + self._dropped

    @property
    def begun(self) -> bytes:
        """The first bytes of the incomplete line."""
        return bytes(self._kept[:_EDGE_BYTES])

    def feed(self, chunk: bytes) -> Iterator[bytes | LongLine]:
        """Yield the lines that end in this chunk, without newlines and empty lines."""
        self.fed_at = time.monotonic()
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            self._add(part)
            if self._kept:
                line, size = bytes(self._kept), self.unfinished
                self._kept.clear()
                self._dropped = 0
                yield (
                    line if size <= self.limit else LongLine(size, self.limit, line[:_EDGE_BYTES], line[-_EDGE_BYTES:])
                )
        self._add(rest)

    def _add(self, part: bytes) -> None:
        self._kept += part
        if self.unfinished > self.limit:
            self._dropped += len(self._kept[_EDGE_BYTES:-_EDGE_BYTES])
            del self._kept[_EDGE_BYTES:-_EDGE_BYTES]


_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_START = b'{"jsonrpc"'
_ANSWER = re.compile(rb'\{"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*([0-9]{1,15})\s*,\s*"(?:result|error)"')
_ID_AT_THE_END = re.compile(rb',\s*"id"\s*:\s*([0-9]{1,15})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')


class LenientMessage(dict[str, Any]):
    """A message with numbers or characters that JSON cannot hold."""


class UnreadableMessage(dict[str, Any]):
    """A response of which only the request id can be read; `problem`: why, and what to do."""

    def __init__(self, number: int, fault: str) -> None:
        super().__init__(jsonrpc="2.0", id=number)
        self.problem = f"cannot be read ({fault}): write each message as JSON on a line of its own"


class OversizedMessage(dict[str, Any]):
    """A response of `size` bytes, more than `limit`, of which only the request id was read."""

    def __init__(self, number: int, size: int, limit: int) -> None:
        super().__init__(jsonrpc="2.0", id=number)
        self.size = size
        self.limit = limit


def request_line(number: int, method: str, params: dict[str, Any]) -> bytes:
    """Return one request with its newline."""
    return wire.write({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + b"\n"


def read_line(line: bytes) -> dict[str, Any] | None:
    """Return the message in a line of stdout; None if the line is text that the program printed.

    A message with NaN, Infinity or halves of surrogate pairs is accepted: its numbers stay for the check of the result,
    its halves become their escapes. So is one behind text printed without a newline, or a byte order mark. A response
    that cannot be read at all is an `UnreadableMessage`, so that its request does not wait.
    """
    line = line.removeprefix(_BYTE_ORDER_MARK)
    try:
        message = orjson.loads(line)
        message = loads(line) if has_long_integers(line) else message
    except orjson.JSONDecodeError:
        message = _read_leniently(line)
    if message is None and (answer := _ANSWER.search(line)) is not None:
        return UnreadableMessage(int(answer[1]), fault_of(line))
    return message if isinstance(message, dict) and "jsonrpc" in message else None


def fault_of(line: bytes) -> str:
    """Return why a line is no JSON-RPC message, or cannot be read."""
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            return f"more follows the JSON at character {error.pos + 1}"
        return f"no JSON at character {error.pos + 1}: {error.msg}"
    except UnicodeDecodeError:
        return "not UTF-8"
    except ValueError:
        return "an integer of too many digits"
    except RecursionError:
        return "nested too deep"
    if not isinstance(value, dict):
        return "no JSON object"
    return "nested too deep" if "jsonrpc" in value else 'the member "jsonrpc": "2.0" is missing'


def read_long_line(line: LongLine, pending: Collection[int]) -> OversizedMessage | None:
    """Return the response in an overlong line to a `pending` request; None if it names none."""
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
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_sanitized(key): _sanitized(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_sanitized(member) for member in value]
    return value


def find_non_finite(value: Any, path: str) -> str | None:
    """Describe where a value holds NaN or an infinity; None if it holds none."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"{path} is {'NaN' if math.isnan(value) else 'infinite'}, which JSON cannot hold"
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        found = find_non_finite(member, f"{path}[{key}]" if isinstance(value, list) else f"{path}.{key}")
        if found is not None:
            return found
    return None
