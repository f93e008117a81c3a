"""The validation rows on which the search of a raced run scores candidates: a random sample of all."""

import random
from collections.abc import Sequence

from gepa_client.gepa.row_loaders import RowLoader, RowSample
from gepa_client.settings.groups import RACE_ROWS

SearchRows = RowLoader | RowSample


def default_sample(slots: int) -> int:
    """Return how many validation rows a raced search samples by default.

    `slots`: how many examples the servers take at once. Fewer rows would leave slots idle and save no time.
    """
    return max(RACE_ROWS, slots)


def rows_searched(rows: int, sample: int) -> int:
    """Return on how many of `rows` validation rows a search scores candidates. `sample`: at most; 0 for all of them."""
    return min(rows, sample) or rows


def search_rows(val: RowLoader, count: int, seed: int) -> SearchRows:
    """Return a random sample of `count` validation rows; all of them if `count` is 0 or there are no more.

    A search compares candidates with each other, most of which lose: a few rows for each of many candidates find a
    better one for the same metric calls than many rows for each of a few. Decision 0022 has the figures.
    """
    ids = val.all_ids()
    if rows_searched(len(ids), count) == len(ids):
        return val
    return RowSample(val, sorted(random.Random(f"{seed} sample").sample(ids, count)))  # noqa: S311 - no secret


def rows_left(val: RowLoader, searched: SearchRows) -> Sequence[int]:
    """Return the ids of the validation rows that the search does not use, in order."""
    used = set(searched.all_ids())
    return [row_id for row_id in val.all_ids() if row_id not in used]
