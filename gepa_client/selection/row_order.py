"""The order in which a race evaluates validation rows."""

import random
from collections.abc import Sequence


def race_order(row_ids: Sequence[int], seed: int, race: int) -> list[int]:
    """Return the validation rows in random order, which is what the bound of `race_rule` needs.

    `row_ids`: GEPA's, of all validation rows. `race`: the number of the race within the run. Each race has an order of
    its own: in an order that all share, the best of the pool would have won its own race by its luck on the first rows.
    """
    return random.Random(f"{seed} {race}").sample(row_ids, len(row_ids))  # noqa: S311 - no secret
