"""Values as JSON, strictly or in any form for people, and markers for what readers change (`docs/protocol.md`)."""

from __future__ import annotations

import base64
import codecs
import contextlib
import enum
import json
import math
import re
from typing import Any

MARK = "$exact"
MAX_SAFE_INTEGER = 2**53 - 1
MAX_DEPTH = 200
_DEEPEST = 1_000  # also if the program has raised the limit of recursion
_TOO_DEEP = "%s is nested too deep or contains itself"
_MAX_SHOWN = 8_192  # characters of what is not JSON
_ALIKE = bytes.maketrans(b"123456789", b"0" * 9)
_SIXTEEN_DIGITS = b"0" * 16  # as many as the first integer that is not safe
_MARK = json.dumps(MARK).encode()


class NotJsonError(ValueError):
    """A value that JSON cannot hold; the message names its path and type."""


def _escaped(error: UnicodeError) -> tuple[bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    escapes = "".join("\\\\u%04x" % ord(half) for half in error.object[error.start : error.end])
    return escapes.encode(), error.end


# Halves of surrogate pairs cannot be written in UTF-8: within JSON, their escape is written as text.
codecs.register_error("evolverpc-escape", _escaped)

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def to_text(value: Any, name: str) -> str:
    """Return compact JSON. Keys that are numbers, booleans or None become strings, as JSON does.

    Raises:
        NotJsonError: the message begins with `name` and the path to the first offending part.
    """
    with contextlib.suppress(Exception):  # a user's container may raise anything
        return _encode(value)
    packed(value, name)
    raise NotJsonError(name + " cannot be written as JSON")


def exact_text(value: Any, name: str) -> str:
    """Return JSON as `to_text`, with markers in place of what readers change, for a value that a program gets back."""
    text = to_text(value, name)
    content = text.encode("utf-8", "surrogatepass")
    is_plain = not _has_long_numbers(content) and _MARK not in content and is_unicode(text)
    return text if is_plain else to_text(packed(value, name), name)


def readable_text(value: Any, name: str) -> str:
    """Return JSON as `to_text`, with integers beyond 2^53 - 1 as texts (contract), for models and people."""
    text = to_text(value, name)
    is_plain = not _has_long_numbers(text.encode("utf-8", "surrogatepass"))
    return text if is_plain else to_text(packed(value, name, with_markers=False), name)


def _has_long_numbers(content: bytes) -> bool:
    # Searching bytes with all digits alike is ten times as fast as a pattern.
    return _SIXTEEN_DIGITS in content.translate(_ALIKE)


def packed(value: Any, name: str, *, with_markers: bool = True) -> Any:
    """Return a value with markers for large integers, halves of surrogate pairs, and objects that look like markers.

    Tuples become lists, and keys texts, as in all JSON. Without markers, large integers become texts.

    Raises:
        NotJsonError: as `to_text`.
    """
    try:
        return _packed(value, name, 0, with_markers)
    except NotJsonError:
        raise
    except RecursionError:
        raise NotJsonError(_TOO_DEEP % name) from None
    except Exception as broken:  # noqa: BLE001  # as above
        message = "%s cannot be written as JSON: reading it raises %s" % (name, dotted(type(broken)))
        raise NotJsonError(message) from None


def _packed(value: Any, path: str, depth: int, with_markers: bool) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value if not with_markers or is_unicode(value) else {MARK: ["text", json.dumps(value)[1:-1]]}
    if isinstance(value, int):
        if -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
            return value
        return {MARK: ["integer", int.__repr__(value)]} if with_markers else int.__repr__(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        raise NotJsonError("%s is %s, which JSON cannot hold" % (path, "NaN" if math.isnan(value) else "infinite"))
    if depth > _DEEPEST:
        raise NotJsonError(_TOO_DEEP % path.split(".", 1)[0].split("[", 1)[0])
    if isinstance(value, dict):
        for key in value:
            if not (key is None or isinstance(key, (str, int, float))):
                raise NotJsonError("%s has a key of type %s; JSON keys are strings" % (path, dotted(type(key))))
        members = {
            key: _packed(member, "%s.%s" % (path, key), depth + 1, with_markers) for key, member in value.items()
        }
        is_plain = list(value) != [MARK] and all(is_unicode(key) for key in value if isinstance(key, str))
        if is_plain or not with_markers:
            return members
        return {MARK: ["object", [[_packed(key, path, depth, True), member] for key, member in members.items()]]}
    if isinstance(value, (list, tuple)):
        return [_packed(member, "%s[%d]" % (path, at), depth + 1, with_markers) for at, member in enumerate(value)]
    raise NotJsonError("%s is a %s, which is not JSON" % (path, dotted(type(value))))


def json_or_repr(output: Any) -> Any:
    """Return the output if it is JSON, else `{"type", "repr"}`; the object itself stays here."""
    try:
        to_text(output, "output")
    except NotJsonError:
        try:
            shown = repr(output)[:_MAX_SHOWN]
        except Exception as error:  # noqa: BLE001  # it is the program's code
            shown = "its __repr__ raised %s" % dotted(type(error))
        return {"type": dotted(type(output)), "repr": shown}
    return output


def to_bytes(text: str) -> bytes:
    """Encode JSON as UTF-8, with the escape of each half of a surrogate pair as text."""
    return text.encode("utf-8", "evolverpc-escape")


def dotted(kind: type) -> str:
    """Return a type's readable name: `set`, `numpy.int64`."""
    return kind.__qualname__ if kind.__module__ == "builtins" else "%s.%s" % (kind.__module__, kind.__qualname__)


_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


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
