"""Rows of a DSPy program that are objects of the script: the program gets these themselves, by split and position."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from evolverpc_common.exact_values import MAX_SAFE_INTEGER
from rpc_server.worker.json_form import json_form

HeldRows = Mapping[str, list[Any]]
"""Rows by split, each a `dspy.Example`."""


def held_rows(given: dict[str, Any]) -> HeldRows:
    """Return the rows of each split that has a `dspy.Example` among them, and leave lists of all others in `given`."""
    held = {}
    for name, rows in given.items():
        if not isinstance(rows, Iterable) or isinstance(rows, str) or hasattr(type(rows), "columns"):  # a file, a table
            continue
        given[name] = rows = list(rows)
        example = next((type(row) for row in rows if hasattr(row, "with_inputs")), None)
        if example is not None:
            held[name] = [row if isinstance(row, example) else example(row) for row in rows]
    return held


LONGEST_TEXT = 4_000
SHOWN = 200


def shown_rows(held: HeldRows) -> dict[str, list[dict[str, Any]]]:
    """Return the rows as the optimizer records and shows them: in JSON, long texts by their beginning and a digest."""
    return {split: [_shown(json_form(row)) for row in rows] for split, rows in held.items()}


def _shown(value: Any) -> Any:
    if isinstance(value, dict):
        return {_shown(name): _shown(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_shown(part) for part in value]
    if isinstance(value, str):
        content = value.encode("utf-8", "backslashreplace")
        text = content.decode()
        if len(text) <= LONGEST_TEXT:
            return text
        return f"{text[:SHOWN]}… ({len(text)} characters, SHA-256 {hashlib.sha256(content).hexdigest()})"
    return str(value) if isinstance(value, int) and abs(value) > MAX_SAFE_INTEGER else value
