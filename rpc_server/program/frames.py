"""JSON-RPC messages as lines: written strictly, read with care for what programs print in between."""

import json
import math
import re
from collections.abc import Collection
from typing import Any

import orjson

from rpc_server.program.lines import LongLine
from rpc_server.rpc import wire

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
        message = _mended(json.loads(line[start:]))
    except (ValueError, RecursionError):
        return None
    return LenientMessage(message) if isinstance(message, dict) else None


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_mended(key): _mended(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_mended(member) for member in value]
    return value


def unwritable(value: Any, path: str) -> str | None:
    """Where a value holds NaN or an infinity, which leave as neither; None where all is well."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"{path} is {'NaN' if math.isnan(value) else 'infinite'}, which JSON cannot hold"
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        found = unwritable(member, f"{path}[{key}]" if isinstance(value, list) else f"{path}.{key}")
        if found is not None:
            return found
    return None
