import random
from collections.abc import Sequence

import pytest

from gepa_client.selection.race_rule import ERROR, DropDecision, drop_decision, race_order, targets

ROWS = 200


def raced(
    own: Sequence[float], other: Sequence[float], *, highest: float = 1.0, block: int = 8
) -> tuple[DropDecision, int]:
    """Race until dropped or over; return the last decision and how many rows it took."""
    rows = 0
    while True:
        rows = min(rows + block, len(other))
        decision = drop_decision(own[:rows], other, highest)
        if decision.drops or rows == len(other):
            return decision, rows


def share_dropped(difference: float, races: int = 40) -> tuple[float, float]:
    """Return the share of proposals of this mean difference that are dropped, and the mean share of rows they took.

    They gain on rows that the other one failed and lose on others, together on a fifth of all rows.
    """
    source = random.Random(7)
    gained, lost = (round(ROWS * (0.1 + sign * difference / 2)) for sign in (1, -1))
    pairs = [(1.0, 0.0)] * gained + [(0.0, 1.0)] * lost + [(1.0, 1.0), (0.0, 0.0)] * ((ROWS - gained - lost) // 2)
    results = [raced(*zip(*source.sample(pairs, ROWS), strict=True)) for _ in range(races)]
    return sum(decision.drops for decision, _ in results) / races, sum(rows for _, rows in results) / races / ROWS


def test_equals_are_dropped_in_at_most_the_stated_share_of_races_better_ones_less_and_worse_ones_sooner() -> None:
    better, _ = share_dropped(0.1)
    equal, _ = share_dropped(0.0)
    worse, rows = share_dropped(-0.1)
    assert better < equal <= ERROR
    assert worse >= 0.95
    assert rows < 0.25


def test_the_same_scores_as_the_best_candidate_stay() -> None:
    decision, rows = raced([0.5] * ROWS, [0.5] * ROWS)
    assert (decision.drops, rows) == (False, ROWS)
    assert decision.evidence == pytest.approx(1.0)


@pytest.mark.parametrize("unit", [1e-200, 1e-12, 0.001, 1.0, 100.0, 1e17, 1e200])
def test_scores_may_have_any_unit_and_sign(unit: float) -> None:
    other = [unit * (row % 3 - 5) for row in range(60)]
    own = [score - unit for score in other]
    decision, rows = raced(own, other, highest=-3 * unit)
    assert decision.drops
    assert rows < 60
    assert decision.mean == pytest.approx(-unit)


def test_targets_vary_with_parent_and_best_and_have_the_mean_of_the_best() -> None:
    pool = [{0: 0.0, 1: 0.0, 2: 1.0, 3: 0.0}, {0: 1.0, 1: 1.0, 2: 1.0, 3: 0.0}, {0: 0.0, 1: 1.0, 2: 0.0, 3: 0.0}]
    assert targets(pool, pool[0]) == {0: 0.75, 1: 0.75, 2: 1.25, 3: 0.25}
    assert targets(pool, pool[1]) == pool[1]


def test_each_race_has_an_order_of_its_own_that_the_seed_fixes() -> None:
    rows = list(range(50))
    first, second = (race_order(rows, 0, race) for race in (1, 2))
    assert sorted(first) == sorted(second) == rows
    assert first != second
    assert race_order(rows, 0, 1) == first != race_order(rows, 1, 1)
