"""Any value of Python as JSON, to be read by people: the value itself is used where it is."""

from __future__ import annotations

import base64
import enum
import math
import re
from typing import Any

from .encode import MAX_DEPTH, dotted

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_MAX_SHOWN = 8_192  # characters of what has no form of its own


def json_form(value: Any, depth: int = 0) -> Any:
    """Return JSON that is the same in each process: of objects their fields, of dates and the like their text."""
    if isinstance(value, enum.Enum):
        return json_form(value.value, depth + 1)
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float)):
        return value if isinstance(value, int) or math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    fields = _fields(value)
    if depth > MAX_DEPTH:
        return _described(value)
    if fields is not None:
        return {str(name): json_form(part, depth + 1) for name, part in fields.items()}
    if isinstance(value, (list, tuple)):
        return [json_form(part, depth + 1) for part in value]
    if isinstance(value, (set, frozenset)):
        return sorted((json_form(part, depth + 1) for part in value), key=repr)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return _described(value)


def _fields(value: Any) -> dict[Any, Any] | None:
    """Return what a mapping, a `dspy.Example`, a pydantic model or a dataclass holds, by name."""
    if isinstance(value, dict):
        return value
    if isinstance(value, type):
        return None
    if hasattr(value, "toDict"):  # DSPy's examples and predictions
        return dict(value.items())
    names = getattr(type(value), "model_fields", None) or getattr(type(value), "__dataclass_fields__", None)
    return {name: getattr(value, name, None) for name in names} if isinstance(names, dict) else None


def _described(value: Any) -> dict[str, str]:
    if callable(value) and hasattr(value, "__qualname__"):
        return {"type": dotted(type(value)), "repr": "%s.%s" % (value.__module__, value.__qualname__)}
    return {"type": dotted(type(value)), "repr": _ADDRESS.sub("", repr(value))[:_MAX_SHOWN]}
