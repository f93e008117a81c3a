"""Values that readers of JSON change: read exactly, written with the contract's marker (`docs/protocol.md`), and shown.

A marker is `{"$exact": [kind, content]}`. The kinds: `integer`, beyond 2^53 - 1, and `number`, as texts of digits;
`text` with half of a surrogate pair, as the content of its JSON; `tuple`, as an array; `object` with keys that are no
texts, or that looks like a marker, as an array of pairs.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn

import orjson

MARK = "$exact"

MAX_SAFE_INTEGER = 2**53 - 1
"""The largest integer every JSON reader keeps exactly."""

KINDS = {
    "integer": "an integer beyond 2^53 - 1",
    "number": "a number beyond 2^53 - 1",
    "text": "a text with half of a surrogate pair",
    "tuple": "a tuple",
    "object": "a mapping with other keys than texts",
}
"""What the kinds of markers stand for, in words."""

_ALIKE = bytes.maketrans(b"123456789", b"0" * 9)
_MANY_DIGITS = b"0" * 16  # as many as the first integer that is not safe
_LONG_INTEGER = re.compile(rb"(?<![\d.eE+])\d{16,}(?![\d.eE])")
_MOST_LEVELS = 200


class InexactValueError(ValueError):
    """A value cannot be carried exactly; the message begins with its path."""


def loads(text: bytes | bytearray | str) -> Any:
    """Parse JSON with all digits of integers, and halves of surrogate pairs, which `orjson` changes or refuses.

    Raises:
        orjson.JSONDecodeError: it is not JSON, or has a number that no float holds.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if "surrogate" not in error.msg:
            raise
    else:
        if not has_long_integers(text):
            return value
    try:
        return json.loads(text, parse_constant=_refused, parse_float=_finite)
    except json.JSONDecodeError as error:
        raise orjson.JSONDecodeError(error.msg, error.doc, error.pos) from None
    except (ValueError, RecursionError) as error:  # an integer of thousands of digits
        raise orjson.JSONDecodeError(str(error), text if isinstance(text, str) else text.decode(), 0) from None


def has_long_integers(text: bytes | bytearray | str) -> bool:
    """Return whether JSON may have an integer that some readers round."""
    content = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    # Searching bytes with all digits alike is ten times as fast as a pattern.
    return _MANY_DIGITS in content.translate(_ALIKE) and _LONG_INTEGER.search(content) is not None


def packed(value: Any, path: str = "") -> Any:
    """Return a value as JSON that every reader keeps, with markers where plain JSON would change it.

    `path`: of the value, for errors.

    Raises:
        InexactValueError: a part is of a type that JSON lacks, NaN or infinite, or nested too deep.
    """
    return _packed(value, path, 0)


def _packed(value: Any, path: str, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value) if is_unicode(value) else {MARK: ["text", json.dumps(value)[1:-1]]}
    if isinstance(value, int):
        safe = -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER
        return int(value) if safe else {MARK: ["integer", _digits(value, path)]}
    if isinstance(value, float):
        if value - value != 0:
            raise InexactValueError(f"{path or 'it'} is {float(value)}, which JSON cannot hold")
        return float(value)
    if depth > _MOST_LEVELS:
        raise InexactValueError(f"{path.split('.')[0].split('[')[0] or 'it'} is nested too deep, or contains itself")
    if isinstance(value, Mapping):
        members = [(name, _packed(member, _joined(path, name), depth + 1)) for name, member in value.items()]
        if list(value) != [MARK] and all(isinstance(name, str) and is_unicode(name) for name in value):
            return {str(name): member for name, member in members}
        if other := next((name for name in value if not isinstance(name, str | int | float | None)), None):
            raise InexactValueError(
                f"{path or 'it'} has a key of type {_name_of(other)}: give texts or numbers as keys"
            )
        pairs = [[_packed(name, f"a key of {path or 'it'}", depth + 1), member] for name, member in members]
        return {MARK: ["object", pairs]}
    if isinstance(value, list | tuple):
        items = [_packed(member, f"{path}[{index}]", depth + 1) for index, member in enumerate(value)]
        return items if isinstance(value, list) else {MARK: ["tuple", items]}
    raise InexactValueError(f"{path or 'it'} is of type {_name_of(value)}, which JSON lacks: give it as text")


def with_integers_packed(value: Any) -> Any:
    """Return parsed JSON with markers in place of integers that readers round, and nothing else changed."""
    if isinstance(value, dict):
        return {name: with_integers_packed(member) for name, member in value.items()}
    if isinstance(value, list):
        return [with_integers_packed(member) for member in value]
    if type(value) is int and not -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
        return {MARK: ["integer", _digits(value, "")]}
    return value


def readable(value: Any) -> Any:
    """Return JSON with what its markers stand for as people read it: digits, escapes, lists, and keys as texts."""
    if isinstance(value, list):
        return [readable(member) for member in value]
    if not isinstance(value, dict):
        return value
    if (marker := _marker(value)) is None:
        return {name: readable(member) for name, member in value.items()}
    kind, content = marker
    if kind == "tuple":
        return [readable(member) for member in content]
    if kind == "object":
        return {_key(readable(name)): readable(member) for name, member in content}
    return content


def place_of_marker(value: Any, path: str = "") -> tuple[str, str] | None:
    """Return the path and the kind of the first marker in JSON; None if there is none."""
    if isinstance(value, dict) and (marker := _marker(value)) is not None:
        return path or "it", marker[0]
    if isinstance(value, dict):
        members = [(member, _joined(path, name)) for name, member in value.items()]
    elif isinstance(value, list):
        members = [(member, f"{path}[{index}]") for index, member in enumerate(value)]
    else:
        return None
    return next((found for member, name in members if (found := place_of_marker(member, name)) is not None), None)


def is_unicode(text: str) -> bool:
    """Return whether a text has no half of a surrogate pair, which UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _marker(value: dict[str, Any]) -> tuple[str, Any] | None:
    if len(value) != 1 or MARK not in value:
        return None
    match value[MARK]:
        case ["integer" | "number" | "text" as kind, str(content)]:
            return kind, content
        case ["tuple" | "object" as kind, [*content]]:
            return kind, content
    return None


def _digits(value: int, path: str) -> str:
    try:
        return int.__repr__(value)
    except ValueError as error:
        raise InexactValueError(f"{path or 'it'}: {error}") from None


def _name_of(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _joined(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def _key(name: Any) -> str:
    return name if isinstance(name, str) else orjson.dumps(name).decode()


def _refused(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if number - number != 0:
        raise ValueError(f"{text} is more than a number can be")
    return number
