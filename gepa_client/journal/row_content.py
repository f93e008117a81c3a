"""Rows that are equal: their data are, apart from white space and the order of keys."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gepa_client.journal.history import RecordedRow
from gepa_client.journal.requests import digest_of


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


def by_unit(rows: Sequence[RecordedRow], scores: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return the scores by unit; `scores`: by row, then by repeat.

    The order is that of digests of the rows' contents: neither their scores nor their file decide about it.
    """
    units: dict[str, list[float]] = {}
    for row, of_row in zip(rows, scores, strict=True):
        units.setdefault(content_key(row.example, row.data), []).extend(of_row)
    return [units[key] for key in sorted(units, key=digest_of)]


def shared_rows(splits: Mapping[str, Sequence[RecordedRow]]) -> dict[str, int]:
    """Return how many test rows are equal to rows of each other split."""
    known = {split: {content_key(row.example, row.data) for row in rows} for split, rows in splits.items()}
    test = [content_key(row.example, row.data) for row in splits["test"]]
    return {split: sum(key in keys for key in test) for split, keys in known.items() if split != "test"}
