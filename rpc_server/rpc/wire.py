"""JSON on the wire: strict when read, and written whole or not at all."""

import json
from typing import Any

import orjson

from evolverpc_common.exact_values import has_long_integers, loads
from protocol import JsonValue
from protocol.errors import LimitExceeded, ParseError


def read(body: bytes | bytearray) -> Any:
    """Parse the JSON value in `body`, integers with all their digits.

    Raises:
        ParseError: empty, not JSON, not UTF-8, NaN or Infinity, or nested beyond `MAX_READABLE_NESTING`.
    """
    try:
        value = orjson.loads(body)
        return loads(body) if has_long_integers(body) else value
    except orjson.JSONDecodeError as error:
        raise ParseError(reason=str(error)) from None


def write(value: JsonValue) -> bytes:
    """Serialize the value as compact JSON in UTF-8; an `orjson.Fragment` inside it is copied.

    Raises:
        LimitExceeded: nested deeper than can be written.
        TypeError: something in it is not JSON.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        # orjson reads 1,024 levels but writes 254, and what was read must be writable.
        return _write_deep(value)


def write_to_keep(value: JsonValue) -> bytes:
    """Serialize without excess memory: orjson's own result may hold up to eight times its bytes. Raises as `write`."""
    return bytes(memoryview(write(value)))


def canonical(value: JsonValue) -> bytes:
    """Serialize with sorted keys, for digests. Raises as `write`."""
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
