"""Fills saved values into the data of a step and writes out what is generated; see `protocol/conformance/README.md`."""

import re
from collections.abc import Mapping
from typing import Any

from gepa_client.conformance.matching import ABSENT

PLACE = re.compile(r"\$\{([a-z_][^{}]*)\}")
PART = re.compile(r"\[(\*|\d+)\]|([^.\[\]]+)")


class Unknown(LookupError):
    """A case names a value that is not there."""


def render(node: Any, scope: Mapping[str, Any]) -> Any:
    """`node` with every `${name.path}` replaced and every generator written out.

    Raises:
        Unknown: a name or path is not in `scope`.
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


def as_bytes(rendered: Any) -> bytes:
    """The body that a rendered `raw` stands for: texts in UTF-8 and bytes, one after the other."""
    if isinstance(rendered, list):
        return b"".join(as_bytes(part) for part in rendered)
    return rendered if isinstance(rendered, bytes) else str(rendered).encode()


def lookup(document: Any, path: str) -> Any:
    """The value at `a.b[0].c`, or `ABSENT`; `[*]` gives the list of what the rest of the path finds in each item."""
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
        raise Unknown(f"no value for ${{{path}}}")
    return value


def _times(node: Mapping[str, Any], scope: Mapping[str, Any]) -> int:
    return int(render(node["$times"], scope)) + int(node.get("$plus", 0))


def _repeat(node: Mapping[str, Any], scope: Mapping[str, Any]) -> list[Any]:
    return [render(node["$repeat"], {**scope, "index": index}) for index in range(_times(node, scope))]


def _text(node: Mapping[str, Any], scope: Mapping[str, Any]) -> str:
    return str(node["$text"]) * _times(node, scope)


def _nest(node: Mapping[str, Any], _scope: Mapping[str, Any]) -> list[Any]:
    nested: list[Any] = []
    for _ in range(int(node["$nest"]) - 1):
        nested = [nested]
    return nested


def _product(node: Mapping[str, Any], scope: Mapping[str, Any]) -> float:
    left, right = (render(factor, scope) for factor in node["$product"])
    product = left * right
    return round(product) if product == round(product) else float(product)


def _join(node: Mapping[str, Any], scope: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for part in render(node["$join"], scope) for key, value in part.items()}


def _bytes(node: Mapping[str, Any], _scope: Mapping[str, Any]) -> bytes:
    return bytes.fromhex(node["$bytes"])


GENERATORS = {
    "$repeat": _repeat,
    "$text": _text,
    "$nest": _nest,
    "$product": _product,
    "$join": _join,
    "$bytes": _bytes,
}
