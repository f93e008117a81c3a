"""Values that readers of JSON change, in the contract's marker `{"$exact": [kind, content]}` (`docs/protocol.md`)."""

from __future__ import annotations

import json
import math
from typing import Any

MARK = "$exact"
MAX_SAFE_INTEGER = 2**53 - 1


class MalformedMarkerError(ValueError):
    """A marker has another form than those of the contract."""


def packed(value: Any) -> Any:
    """Return an output with markers for large integers, halves of surrogate pairs, and objects that look like markers.

    Tuples become lists, and keys texts, as in all JSON.
    """
    if isinstance(value, str):
        return value if is_unicode(value) else {MARK: ["text", json.dumps(value)[1:-1]]}
    if isinstance(value, int) and not -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
        return {MARK: ["integer", int.__repr__(value)]}
    if isinstance(value, dict):
        if list(value) == [MARK] or not all(is_unicode(name) for name in value if isinstance(name, str)):
            return {MARK: ["object", [[packed(name), packed(member)] for name, member in value.items()]]}
        return {name: packed(member) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [packed(member) for member in value]
    return value


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


def _integer(content: Any) -> int:
    if not isinstance(content, str):
        raise TypeError("an integer is written as text")
    return int(content)


def _number(content: Any) -> float:
    number = float(content)
    if not isinstance(content, str) or not math.isfinite(number):
        raise TypeError("a finite number is written as text")
    return number


def _text(content: Any) -> str:
    return str(json.loads('"%s"' % content))


def _tuple(content: Any) -> tuple[Any, ...]:
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
