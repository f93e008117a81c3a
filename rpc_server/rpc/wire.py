"""JSON as it travels: strict when read, and written whole or not at all."""

import json
from typing import Any

import orjson

from protocol import JsonValue
from protocol.errors import LimitExceeded, ParseError


def read(body: bytes | bytearray) -> Any:
    """The JSON value in `body`.

    Raises:
        ParseError: empty, not JSON, not UTF-8, NaN or Infinity, or nested deeper than orjson reads.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ParseError(reason=str(error)) from None


def write(value: JsonValue) -> bytes:
    """The value as compact JSON in UTF-8; an `orjson.Fragment` inside it is copied as it stands.

    Raises:
        LimitExceeded: nested deeper than can be written.
        TypeError: something in it is not JSON.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        # orjson reads 1,024 levels but writes 254: what could be read must also find its way out.
        return _write_deep(value)


def write_to_keep(value: JsonValue) -> bytes:
    """The same in no more memory than it has bytes: what orjson returns may hold on to eight times as much.

    Raises as `write` does.
    """
    return bytes(memoryview(write(value)))


def canonical(value: JsonValue) -> bytes:
    """The same bytes for equal values, whatever the order of their keys; for digests. Raises as `write` does."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return _write_deep(value, sort_keys=True)


def _write_deep(value: JsonValue, *, sort_keys: bool = False) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=sort_keys)
    except RecursionError:
        raise LimitExceeded("nested too deep", limit="nesting") from None
    return text.encode()
