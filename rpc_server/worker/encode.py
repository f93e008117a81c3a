"""Strict JSON output: a value that cannot be written is named by its path."""

from __future__ import annotations

import codecs
import json
import math
from typing import Any, Callable

from .exact_values import MARK, MAX_SAFE_INTEGER, is_unicode, packed

MAX_DEPTH = 200
_MAX_SHOWN = 8_192  # characters of an output that is not JSON
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
    try:
        return _encode(value)
    except Exception:  # noqa: BLE001  # a user's container may raise anything
        raise NotJsonError(_not_json_message(value, name)) from None


def exact_text(value: Any, name: str) -> str:
    """Return JSON as `to_text`, with markers in place of what readers change, for a value that a program gets back."""
    text = to_text(value, name)
    content = text.encode("utf-8", "surrogatepass")
    is_plain = not _has_long_numbers(content) and _MARK not in content and is_unicode(text)
    return text if is_plain else _converted(packed, value, name)


def readable_text(value: Any, name: str) -> str:
    """Return JSON as `to_text`, with integers beyond 2^53 - 1 as texts (contract), for models and people."""
    text = to_text(value, name)
    return _converted(_with_digits, value, name) if _has_long_numbers(text.encode("utf-8", "surrogatepass")) else text


def _has_long_numbers(content: bytes) -> bool:
    # Searching bytes with all digits alike is ten times as fast as a pattern.
    return _SIXTEEN_DIGITS in content.translate(_ALIKE)


def _converted(convert: Callable[[Any], Any], value: Any, name: str) -> str:
    try:
        return to_text(convert(value), name)
    except Exception:  # noqa: BLE001  # as above; nested too deep, for one
        raise NotJsonError(_not_json_message(value, name)) from None


def _with_digits(value: Any) -> Any:
    if isinstance(value, int) and not -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
        return int.__repr__(value)
    if isinstance(value, dict):
        return {key: _with_digits(member) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_digits(member) for member in value]
    return value


def json_or_repr(output: Any) -> Any:
    """Return the output if it is JSON, else `{"type", "repr"}`; the object itself stays here."""
    try:
        to_text(output, "output")
    except NotJsonError:
        return {"type": dotted(type(output)), "repr": repr(output)[:_MAX_SHOWN]}
    return output


def to_bytes(text: str) -> bytes:
    """Encode JSON as UTF-8, with the escape of each half of a surrogate pair as text."""
    return text.encode("utf-8", "evolverpc-escape")


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
