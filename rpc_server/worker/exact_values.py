"""Values that readers of JSON change, in the contract's marker `{"$exact": [kind, content]}` (`docs/protocol.md`)."""

from __future__ import annotations

import json
import math
from typing import Any

MARK = "$exact"


class MalformedMarkerError(ValueError):
    """A marker has another form than those of the contract."""


def unpacked(value: Any) -> Any:
    """Return a value with what its markers stand for.

    Raises:
        MalformedMarkerError: one of them is none of the contract's.
    """
    if isinstance(value, list):
        return [unpacked(member) for member in value]
    if not isinstance(value, dict):
        return value
    if list(value) != [MARK]:
        return {name: unpacked(member) for name, member in value.items()}
    try:
        kind, content = value[MARK]
        return _READERS[kind](content)
    except Exception as error:  # noqa: BLE001  # any other form
        raise MalformedMarkerError("%s is no marker of the contract: %s" % (json.dumps(value)[:200], error)) from None


def unpack_params(params: dict[str, Any]) -> str | None:
    """Put what markers stand for into rows, outputs and the state of an adapter.

    Return how one is malformed, None if none is.
    """
    holder = params.get("eval_batch", params)
    places = [("", params, "adapter_state"), ("_meta.", params.get("_meta") or {}, "adapter_state")]
    for field, member in (("batch", "data"), ("results", "output")):
        places += [("%s[%d]." % (field, at), item, member) for at, item in enumerate(holder.get(field) or ())]
    for path, item, member in places:
        if member in item:
            try:
                item[member] = unpacked(item[member])
            except MalformedMarkerError as error:
                return "%s%s: %s" % (path, member, error)
    return None


def _integer(content: Any) -> Any:
    return _parsed(content, int)


def _number(content: Any) -> float:
    number = float(_parsed(content, int, float))
    if not math.isfinite(number):
        raise ValueError("a number is finite")
    return number


def _text(content: Any) -> Any:
    return _parsed('"' + content + '"', str)


def _parsed(text: Any, *kinds: type) -> Any:
    found = json.loads(text)
    if type(found) not in kinds:
        raise TypeError("it stands for a %s" % type(found).__name__)
    return found


def _tuple(content: Any) -> tuple[Any, ...]:
    if not isinstance(content, list):
        raise TypeError("a tuple is written as an array")
    return tuple(unpacked(member) for member in content)


def _object(content: Any) -> dict[Any, Any]:
    return {unpacked(name): unpacked(member) for name, member in content}


_READERS = {"integer": _integer, "number": _number, "text": _text, "tuple": _tuple, "object": _object}


def is_unicode(text: str) -> bool:
    """Return whether a text has no half of a surrogate pair, which UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
