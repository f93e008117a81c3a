"""The rows by which servers are compared: those in which implementations of one program differ most easily."""

import unicodedata
from collections.abc import Iterator, Mapping, Sequence

from gepa_client.gepa.row_loaders import AnyRow

COMPARED = 5
"""Rows that are evaluated on each server."""

LARGE = 2**31

SEARCHED = 1000
"""Rows among which those to compare by are looked for."""


def rows_to_compare(rows: Sequence[AnyRow], count: int = COMPARED) -> list[AnyRow]:
    """Return the rows that show most of what two implementations may treat differently, in their order.

    Each has most traits (capitals, digits, other scripts, white space at an end, fractions, ...) in fields where none
    chosen before has them, then most traits. Of rows whose data stays on the server these are the first. Only
    `SEARCHED` rows are read.
    """
    rows = rows[:SEARCHED]
    traits = [set(_traits(row.data)) for row in rows]
    chosen: list[int] = []
    seen: set[str] = set()
    while len(chosen) < min(count, len(rows)):
        left = (at for at in range(len(rows)) if at not in chosen)
        best = max(left, key=lambda at: (len(traits[at] - seen), len(traits[at]), -at))
        chosen.append(best)
        seen |= traits[best]
    return [rows[at] for at in sorted(chosen)]


def _traits(value: object, field: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _traits(part, f"{field}.{name}")
    elif isinstance(value, list):
        yield f"{field}: {min(len(value), 2)} entries"
        for part in value:
            yield from _traits(part, field)
    elif isinstance(value, str):
        kinds = {("" if letter.isascii() else "other ") + unicodedata.category(letter) for letter in set(value)}
        yield from (f"{field}: {kind}" for kind in kinds)
        yield from (f"{field}: {name}" for name, found in _forms(value).items() if found)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        size = "zero" if value == 0 else "large" if abs(value) >= LARGE else "usual"
        yield f"{field}: {type(value).__name__}, {size}, {'below' if value < 0 else 'not below'} zero"
    else:
        yield f"{field}: {value}"


def _forms(text: str) -> Mapping[str, bool]:
    return {
        "empty": not text,
        "begins with a capital": text[:1].isupper(),
        "all capitals": text.isupper(),
        "a word in capitals": any(len(word) > 1 and word.isupper() for word in text.split()),
        "a capital within": any(word[:1].isupper() for word in text.split()[1:]),
        "space at an end": text != text.strip(),
        "spaces in a row": "  " in text,
    }
