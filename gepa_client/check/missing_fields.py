"""Rows that lack a field which nearly all others have: most often a mistake in the file."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from evolverpc_common.display_text import one_line
from evolverpc_common.rows import line_of_row
from gepa_client.gepa.row_loaders import AnyRow
from gepa_client.settings.run_settings import Rows, is_file

NEARLY_ALL = 0.9
"""The share of rows that must have a field for its absence in the others to be reported."""

SHOWN_ROWS, SHOWN_FIELDS = 3, 3


def missing_fields(rows: Sequence[AnyRow], source: Rows | None) -> list[str]:
    """Return `row 6 (line 7 of rows.jsonl) lacks `label`, which the other 33 have`, for each such field.

    `source`: where the rows come from, as `splits.sources` returns it.
    """
    fields = [row.data.keys() if isinstance(row.data, dict) else () for row in rows]
    counts = Counter(name for names in fields for name in names)
    found = []
    for name, count in counts.items():
        if NEARLY_ALL * len(rows) <= count < len(rows):
            lacking = [at for at, names in enumerate(fields) if name not in names]
            places = [_place(at, source) for at in lacking[:SHOWN_ROWS]]
            more = [f"{len(lacking) - SHOWN_ROWS} more rows"] if len(lacking) > SHOWN_ROWS else []
            verb = "lacks" if len(lacking) == 1 else "lack"
            found.append(f"{', '.join([*places, *more])} {verb} `{one_line(name, 60)}`, which the other {count:,} have")
    return found[:SHOWN_FIELDS]


def _place(at: int, source: Rows | None) -> str:
    if not isinstance(source, str):
        return f"row {at}"
    number = line_of_row(Path(source), at) if is_file(source) else None
    return f"row {at} of {source}" if number is None else f"row {at} (line {number} of {source})"
