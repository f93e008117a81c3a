"""When two rows count as equal: if their data are, apart from white space and the order of keys."""

import json
from collections.abc import Mapping
from typing import Any


def content_key(wire: Mapping[str, Any], data: Any) -> str:
    """Return a text that two rows share if they are equal.

    `wire`: the row as it goes over the wire. `data`: None if it is not known: such a row of the server is equal to
    itself alone.
    """
    if data is None and "split" in wire:
        return f"{wire['split']}/{wire['id']}"
    return json.dumps(_without_white_space(data), sort_keys=True)


def _without_white_space(value: Any) -> Any:
    """Return the value with one space for each white space within its texts, and none at their ends."""
    if isinstance(value, str):
        return " ".join(value.split())
    if isinstance(value, dict):
        return {name: _without_white_space(part) for name, part in value.items()}
    return [_without_white_space(part) for part in value] if isinstance(value, list | tuple) else value
