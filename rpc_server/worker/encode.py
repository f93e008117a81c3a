"""Strict JSON output: a value that cannot be written is named by its path."""

from __future__ import annotations

import codecs
import json
import math
from typing import Any

MAX_DEPTH = 200
_MAX_SAFE_INTEGER = 2**53 - 1
_MAX_SHOWN = 8_192  # characters of an output that is not JSON
_ALIKE = bytes.maketrans(b"123456789", b"0" * 9)
_SIXTEEN_DIGITS = b"0" * 16  # as many as the first integer that is not safe


class NotJsonError(ValueError):
    """A value that JSON cannot hold; the message names its path and type."""


def _replaced(error: UnicodeError) -> tuple[bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "\ufffd".encode() * (error.end - error.start), error.end


# Lone surrogates cannot be written in UTF-8; the encoder's own "replace" would leave question marks.
codecs.register_error("evolverpc-replacement", _replaced)

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def to_text(value: Any, name: str) -> str:
    """Return compact JSON. Keys that are numbers, booleans or None become strings, as JSON does.

    Raises:
        NotJsonError: the message begins with `name` and the path to the first offending part.
    """
    try:
        return _encode(value)
    except Exception:  # noqa: BLE001  # a user's container may raise anything
        raise NotJsonError(_not_json_message(value, name)) from None


def exact_text(value: Any, name: str) -> str:
    """Return JSON as `to_text`, with integers beyond 2^53 - 1 as strings (contract): other readers round them."""
    text = to_text(value, name)
    # Searching bytes with all digits alike is ten times as fast as a pattern.
    if _SIXTEEN_DIGITS not in text.encode("utf-8", "surrogatepass").translate(_ALIKE):
        return text
    try:
        return to_text(_exact(value), name)
    except Exception:  # noqa: BLE001  # as above; nested too deep, for one
        raise NotJsonError(_not_json_message(value, name)) from None


def _exact(value: Any) -> Any:
    if isinstance(value, int) and not -_MAX_SAFE_INTEGER <= value <= _MAX_SAFE_INTEGER:
        return int.__repr__(value)
    if isinstance(value, dict):
        return {key: _exact(member) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [_exact(member) for member in value]
    return value


def json_or_repr(output: Any) -> Any:
    """Return the output if it is JSON, else `{"type", "repr"}`; the object itself stays here."""
    try:
        to_text(output, "output")
    except NotJsonError:
        return {"type": dotted(type(output)), "repr": repr(output)[:_MAX_SHOWN]}
    return output


def to_bytes(text: str) -> bytes:
    """Encode as UTF-8, with lone surrogates replaced by U+FFFD."""
    return text.encode("utf-8", "evolverpc-replacement")


def _not_json_message(value: Any, name: str) -> str:
    try:
        found = _offender(value, name, 0)
    except Exception as broken:  # noqa: BLE001  # as above
        return "%s cannot be written as JSON: reading it raises %s" % (name, dotted(type(broken)))
    return found if found is not None else name + " cannot be written as JSON"


def _offender(value: Any, path: str, depth: int) -> str | None:
    if value is None or isinstance(value, (str, bool, int)):
        return None
    if isinstance(value, float):
        name = "NaN" if math.isnan(value) else "infinite"
        return None if math.isfinite(value) else "%s is %s, which JSON cannot hold" % (path, name)
    if depth > MAX_DEPTH:
        return "%s is nested too deep or contains itself" % first_path_part(path)
    if isinstance(value, dict):
        for key, member in value.items():
            if not (key is None or isinstance(key, (str, bool, int, float))):
                return "%s has a key of type %s; JSON keys are strings" % (path, dotted(type(key)))
            found = _offender(member, "%s.%s" % (path, key), depth + 1)
            if found is not None:
                return found
        return None
    if isinstance(value, (list, tuple)):
        for index, member in enumerate(value):
            found = _offender(member, "%s[%d]" % (path, index), depth + 1)
            if found is not None:
                return found
        return None
    return "%s is a %s, which is not JSON" % (path, dotted(type(value)))


def first_path_part(path: str) -> str:
    """Return the first part of a path."""
    return path.split(".", 1)[0].split("[", 1)[0]


def dotted(kind: type) -> str:
    """Return a type's readable name: `set`, `numpy.int64`."""
    return kind.__qualname__ if kind.__module__ == "builtins" else "%s.%s" % (kind.__module__, kind.__qualname__)
