"""Limits on how deep JSON values may be nested, and the check for them."""

from collections.abc import Iterable
from typing import Any

import orjson

MAX_READABLE_NESTING = 1024
"""Levels of arrays and objects that orjson reads."""

MAX_WRITABLE_NESTING = 254
"""Levels of arrays and objects that orjson writes."""

MAX_RESULT_NESTING = 200
"""Levels that the result of an example may have. Fewer than can be written, because results travel inside messages."""


def is_nested_deeper(value: Any, levels: int) -> bool:
    """Return whether a JSON value has more than `levels` levels of arrays and objects (at most `MAX_WRITABLE_NESTING`).

    A scalar has no level, `[]` has one.
    """
    wrapped = value
    for _ in range(MAX_WRITABLE_NESTING - levels):
        wrapped = [wrapped]
    try:
        orjson.dumps(wrapped)
    except TypeError:  # too deep, or an integer of more than 64 bits: count the levels
        layer = [value]
        for _ in range(levels):
            layer = [member for part in layer for member in _members(part)]
        return any(isinstance(part, list | dict) for part in layer)
    return False


def _members(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
