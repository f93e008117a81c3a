"""The units of a test: test rows, of which those that are equal count as one."""

from collections.abc import Mapping, Sequence

from gepa_client.journal.history import RecordedRow
from gepa_client.journal.requests import digest_of
from gepa_client.journal.row_content import content_key


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
