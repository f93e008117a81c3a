"""The language of the cases: templates to fill, matchers to compare with; see `protocol/conformance/README.md`."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

ABSENT: Any = object()
"""Stands for a key that an object does not have."""

SHOWN_CHARACTERS = 160

PLACE = re.compile(r"\$\{([a-z_][^{}]*)\}")

PART = re.compile(r"\[(\*|\d+)\]|([^.\[\]]+)")


class Mismatch(NamedTuple):
    """Where an answer is not as expected: its path (empty for the whole), what was expected there, what was found."""

    path: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{_at(self.path, 'expected')} {self.expected}, found {self.found}"


def mismatches(actual: Any, matcher: Any, path: str = "") -> list[Mismatch]:
    """Return where `actual` differs from the matcher; empty if it matches."""
    if isinstance(matcher, dict):
        operators = [key for key in matcher if key.startswith("$")]
        if operators:
            if len(operators) != len(matcher):
                raise ValueError(f"a matcher mixes operators and keys: {sorted(matcher)}")
            return [found for key in operators for found in _operate(key, matcher[key], actual, path)]
        return _object(actual, matcher, path)
    if isinstance(matcher, list):
        return _array(actual, matcher, path)
    return [] if same(actual, matcher) else [Mismatch(path, shown(matcher), shown(actual))]


def same(left: Any, right: Any) -> bool:
    """Whether two JSON values are equal: 1 and 1.0 are, 1 and true are not, the order of keys is nothing."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, int | float) and isinstance(right, int | float):
        return left == right
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def shown(value: Any) -> str:
    """Return a value as short text for a report."""
    try:
        text = "nothing" if value is ABSENT else json.dumps(value)
    except RecursionError:
        text = "a value that nests too deep to show"
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"


def _at(path: str, text: str) -> str:
    return f"{path}: {text}" if path else text


def _object(actual: Any, matcher: dict[str, Any], path: str) -> list[Mismatch]:
    if not isinstance(actual, dict):
        return [Mismatch(path, "an object", shown(actual))]
    return [
        found
        for key, expected in matcher.items()
        for found in mismatches(actual.get(key, ABSENT), expected, f"{path}.{key}" if path else key)
    ]


def _array(actual: Any, matcher: list[Any], path: str) -> list[Mismatch]:
    if not isinstance(actual, list):
        return [Mismatch(path, "an array", shown(actual))]
    if len(actual) != len(matcher):
        return [_length_mismatch(path, matcher, actual)]
    return [
        found
        for position, (item, expected) in enumerate(zip(actual, matcher, strict=True))
        for found in mismatches(item, expected, f"{path}[{position}]")
    ]


def _length_mismatch(path: str, matcher: list[Any], actual: list[Any]) -> Mismatch:
    return Mismatch(path, f"{len(matcher)} items", f"{len(actual)}: {shown(actual)}")


def _operate(operator: str, argument: Any, actual: Any, path: str) -> list[Mismatch]:
    if operator in DEEP:
        return DEEP[operator](actual, argument, path)
    if operator not in FLAT:
        raise ValueError(f"unknown operator {operator}")
    holds, words = FLAT[operator]
    return [] if holds(actual, argument) else [Mismatch(path, words.replace("_", shown(argument)), shown(actual))]


def _every(actual: Any, matcher: Any, path: str) -> list[Mismatch]:
    if isinstance(actual, dict):
        return [found for key, value in actual.items() for found in mismatches(value, matcher, f"{path}.{key}")]
    if isinstance(actual, list):
        return [found for at, value in enumerate(actual) for found in mismatches(value, matcher, f"{path}[{at}]")]
    return [Mismatch(path, "an array or an object", shown(actual))]


def _some(actual: Any, matcher: Any, path: str) -> list[Mismatch]:
    if isinstance(actual, list) and any(not mismatches(value, matcher) for value in actual):
        return []
    return [Mismatch(path, f"an array with an item {shown(matcher)}", shown(actual))]


def _unordered(actual: Any, matchers: list[Any], path: str) -> list[Mismatch]:
    if not isinstance(actual, list):
        return [Mismatch(path, "an array", shown(actual))]
    if len(actual) != len(matchers):
        return [_length_mismatch(path, matchers, actual)]
    left = list(actual)
    for matcher in matchers:
        at = next((at for at, item in enumerate(left) if not mismatches(item, matcher)), None)
        if at is None:
            return [Mismatch(path, f"an item {shown(matcher)}", shown(actual))]
        del left[at]
    return []


def _one_of(actual: Any, matchers: list[Any], path: str) -> list[Mismatch]:
    if any(not mismatches(actual, matcher) for matcher in matchers):
        return []
    return [Mismatch(path, f"one of {shown(matchers)}", shown(actual))]


def _not(actual: Any, matcher: Any, path: str) -> list[Mismatch]:
    return [] if mismatches(actual, matcher) else [Mismatch(path, f"anything but {shown(matcher)}", shown(actual))]


def _length(actual: Any, matcher: Any, path: str) -> list[Mismatch]:
    if not isinstance(actual, str | list | dict):
        return [Mismatch(path, "a text, an array or an object", shown(actual))]
    return mismatches(len(actual), matcher, f"{path or 'value'} (length)")


TYPES: dict[str, Any] = {
    "string": str,
    "number": int | float,
    "integer": int,
    "boolean": bool,
    "object": dict,
    "array": list,
    "null": type(None),
}
"""Python's types of JSON values; a boolean is no number."""


def _is_type(actual: Any, name: str) -> bool:
    return isinstance(actual, TYPES[name]) and (name == "boolean" or not isinstance(actual, bool))


def _holds(actual: Any, part: Any) -> bool:
    if isinstance(actual, str):
        return isinstance(part, str) and part in actual
    return isinstance(actual, list) and any(same(item, part) for item in actual)


def _distinct(actual: Any, wanted: bool) -> bool:
    found = isinstance(actual, list) and all(
        not same(item, other) for at, item in enumerate(actual) for other in actual[:at]
    )
    return found is wanted


DEEP: dict[str, Callable[[Any, Any, str], list[Mismatch]]] = {
    "$every": _every,
    "$some": _some,
    "$unordered": _unordered,
    "$one_of": _one_of,
    "$not": _not,
    "$length": _length,
}

FLAT: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "$absent": (lambda actual, wanted: (actual is ABSENT) is wanted, "its absence to be _"),
    "$type": (_is_type, "a value of type _"),
    "$exactly": (same, "exactly _"),
    "$approx": (lambda actual, near: _is_type(actual, "number") and abs(actual - near) <= 1e-9, "about _"),
    "$at_least": (lambda actual, bound: _is_type(actual, "number") and actual >= bound, "at least _"),
    "$at_most": (lambda actual, bound: _is_type(actual, "number") and actual <= bound, "at most _"),
    "$contains": (_holds, "a value that contains _"),
    "$lacks": (lambda actual, text: actual is ABSENT or text not in json.dumps(actual), "a value without _"),
    "$starts": (lambda actual, text: isinstance(actual, str) and actual.startswith(text), "a text that begins with _"),
    "$keys": (
        lambda actual, keys: isinstance(actual, dict) and actual.keys() == set(keys),
        "an object with the keys _",
    ),
    "$key_order": (
        lambda actual, keys: isinstance(actual, dict) and list(actual) == keys,
        "an object with, in this order, the keys _",
    ),
    "$distinct": (_distinct, "that its items are distinct: _"),
}
"""Operator -> whether a value fits, and what is expected in words, `_` being the argument."""


class UnknownName(LookupError):
    """A case names a value that is not there."""


def render(node: Any, scope: Mapping[str, Any]) -> Any:
    """`node` with every `${name.path}` replaced and every generator written out.

    Raises:
        UnknownName: a name or path is not in `scope`.
    """
    if isinstance(node, str):
        whole = PLACE.fullmatch(node)
        if whole:
            return _required(whole.group(1), scope)
        return PLACE.sub(lambda place: str(_required(place.group(1), scope)), node)
    if isinstance(node, list):
        return [render(item, scope) for item in node]
    if isinstance(node, dict):
        generator = next((key for key in GENERATORS if key in node), None)
        if generator is not None:
            return GENERATORS[generator](node, scope)
        return {render(key, scope): render(value, scope) for key, value in node.items()}
    return node


def as_json(value: Any) -> bytes:
    """Return the value as JSON in UTF-8; a lone surrogate of a server's text, which has none, as its escape."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace")


def as_bytes(rendered: Any) -> bytes:
    """Return the body of a rendered `raw`: texts in UTF-8 and bytes, one after the other."""
    if isinstance(rendered, list):
        return b"".join(as_bytes(part) for part in rendered)
    return rendered if isinstance(rendered, bytes) else str(rendered).encode()


def lookup(document: Any, path: str) -> Any:
    """Return the value at `a.b[0].c`, or `ABSENT`; `[*]` collects what the rest of the path finds in each item."""
    parts = list(PART.finditer(path))
    for number, part in enumerate(parts):
        index, key = part.groups()
        if index == "*":
            rest = path[part.end() :].lstrip(".")
            items = document if isinstance(document, list) else []
            return [lookup(item, rest) for item in items] if rest else items
        if key is not None and isinstance(document, Mapping):
            document = document.get(key, ABSENT)
        elif index is not None and isinstance(document, list) and int(index) < len(document):
            document = document[int(index)]
        else:
            return ABSENT
        if document is ABSENT and number < len(parts):
            return ABSENT
    return document


def _required(path: str, scope: Mapping[str, Any]) -> Any:
    if path.startswith("fresh:"):
        return scope["fresh"][path.removeprefix("fresh:")]
    value = lookup(scope, path)
    if value is ABSENT:
        raise UnknownName(f"no value for ${{{path}}}")
    return value


def _times(node: Mapping[str, Any], scope: Mapping[str, Any]) -> int:
    return int(render(node["$times"], scope)) + int(node.get("$plus", 0))


def _repeat(node: Mapping[str, Any], scope: Mapping[str, Any]) -> list[Any]:
    return [render(node["$repeat"], {**scope, "index": index}) for index in range(_times(node, scope))]


def _nest(node: Mapping[str, Any], _scope: Mapping[str, Any]) -> list[Any]:
    nested: list[Any] = []
    for _ in range(int(node["$nest"]) - 1):
        nested = [nested]
    return nested


def _product(node: Mapping[str, Any], scope: Mapping[str, Any]) -> float:
    left, right = (render(factor, scope) for factor in node["$product"])
    product = left * right
    return round(product) if product == round(product) else float(product)


GENERATORS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], Any]] = {
    "$repeat": _repeat,
    "$text": lambda node, scope: str(node["$text"]) * _times(node, scope),
    "$nest": _nest,
    "$product": _product,
    "$join": lambda node, scope: {key: value for part in render(node["$join"], scope) for key, value in part.items()},
    "$bytes": lambda node, _scope: bytes.fromhex(node["$bytes"]),
}
