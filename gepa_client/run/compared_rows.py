"""The rows by which servers are compared: those in which implementations of one program differ most easily."""

import itertools
import json
import unicodedata
from collections.abc import Sequence

from gepa_client.gepa.row_loaders import AnyRow

COMPARED = 5
"""Rows that are evaluated on each server."""

SEARCHED = 1000
"""Rows among which those to compare by are looked for."""


def rows_to_compare(rows: Sequence[AnyRow], count: int = COMPARED) -> list[AnyRow]:
    """Return the rows that show most of what two implementations may treat differently, in their order.

    Each has, in its JSON, most neighbours of two kinds of characters that none chosen before has (a capital before a
    small letter, two spaces, a sign before a digit, ...), then most of them. Of rows whose data stays on the server
    these are the first. Only `SEARCHED` rows are read.
    """
    rows = rows[:SEARCHED]
    texts = [json.dumps(row.data, ensure_ascii=False) for row in rows]
    pairs = [set(itertools.pairwise(map(unicodedata.category, text))) for text in texts]
    chosen: list[int] = []
    seen: set[tuple[str, str]] = set()
    while len(chosen) < min(count, len(rows)):
        left = (at for at in range(len(rows)) if at not in chosen)
        best = max(left, key=lambda at: (len(pairs[at] - seen), len(pairs[at]), -at))
        chosen.append(best)
        seen |= pairs[best]
    return [rows[at] for at in sorted(chosen)]
