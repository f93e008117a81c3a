"""Equality of JSON values, exact or but for the last digits of numbers, which machines round differently."""

import math
import re

_CLOSE = 1e-6
"""Numbers that differ by this share are equal, unless the program is deterministic: machines round differently."""

_NUMBERS = re.compile(r"(\d+\.\d+(?:[eE][-+]?\d+)?)")
"""Fractions within a text."""


def same_json(a: object, b: object, *, exact: bool = True) -> bool:
    """Return whether two JSON values are equal; 1 and 1.0 are, true and 1 are not, and the order of keys is free.

    `exact`: numbers that are `_CLOSE` are not equal, also within texts.
    """
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same_json(a[key], b[key], exact=exact) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same_json(x, y, exact=exact) for x, y in zip(a, b, strict=True))
    if not exact and isinstance(a, int | float) and isinstance(b, int | float) and float in (type(a), type(b)):
        return math.isclose(a, b, rel_tol=_CLOSE, abs_tol=_CLOSE)
    if not exact and isinstance(a, str) and isinstance(b, str):
        parts, others = _NUMBERS.split(a), _NUMBERS.split(b)
        return parts[::2] == others[::2] and all(map(_close, parts[1::2], others[1::2]))
    return a == b


def _close(a: str, b: str) -> bool:
    return a == b or math.isclose(float(a), float(b), rel_tol=_CLOSE, abs_tol=_CLOSE)
