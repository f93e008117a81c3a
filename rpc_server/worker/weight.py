"""How much memory an object and all that it alone leads to take, about, whatever its type."""

from __future__ import annotations

import gc
import sys
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any

# What a program has once, however many objects lead to it.
_SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType, CodeType, FrameType)


def weight(value: Any, enough: int) -> int:
    """Bytes; no more are counted once they are more than `enough`."""
    total, seen, waiting = 0, set(), [value]
    while waiting and total <= enough:
        one = waiting.pop()
        if id(one) in seen or issubclass(type(one), _SHARED):
            continue
        seen.add(id(one))
        total += _own(one)
        waiting.extend(gc.get_referents(one))
    return total


def _own(value: Any) -> int:
    try:
        return sys.getsizeof(value)
    except Exception:  # noqa: BLE001  # `__sizeof__` may be user code
        return object.__sizeof__(value)
