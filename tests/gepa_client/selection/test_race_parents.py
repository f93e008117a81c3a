"""Parents of a raced search are the candidates that tie with the best one, not those that win some rows."""

from types import SimpleNamespace
from typing import Any

import pytest

from gepa_client.selection.race import behind_best
from gepa_client.steering.steering import SteeredParents

ROWS = 20


def pool(*solved: set[int], frontier_type: str = "instance", best_of_objectives: set[int] | None = None) -> Any:
    """A state of GEPA with candidates that solve these rows."""
    scores = [{row: float(row in rows) for row in range(ROWS)} for rows in solved]
    return SimpleNamespace(
        program_candidates=[{"rules": str(index)} for index in range(len(solved))],
        prog_candidate_val_subscores=scores,
        program_full_scores_val_set=[sum(each.values()) / ROWS for each in scores],
        program_at_pareto_front_objectives={"found": best_of_objectives or set()},
        frontier_type=frontier_type,
    )


SEED = set(range(4))
BEST = set(range(2, 16))
CLOSE = set(range(13)) | {19}
BEHIND = set(range(6)) | {18}


def test_candidates_that_lag_by_more_than_one_standard_error_are_no_parents() -> None:
    assert behind_best(pool(SEED, BEST, CLOSE, BEHIND), frozenset()) == {0, 3}
    assert behind_best(pool(SEED), frozenset()) == set()
    assert behind_best(pool(SEED, SEED), frozenset()) == set()


def test_the_best_of_those_that_no_user_dropped_is_compared_with() -> None:
    state = pool(SEED, BEST, BEHIND)
    assert behind_best(state, frozenset({1})) == {0}
    assert behind_best(state, frozenset({0})) == {2}
    assert behind_best(state, frozenset()) == {0, 2}


@pytest.mark.parametrize(("frontier_type", "kept"), [("instance", False), ("objective", True), ("cartesian", True)])
def test_the_best_by_an_objective_stays_a_parent_if_the_fronts_have_objectives(frontier_type: str, kept: bool) -> None:
    state = pool(SEED, BEST, frontier_type=frontier_type, best_of_objectives={0})
    assert behind_best(state, frozenset()) == (set() if kept else {0})


def test_a_pinned_candidate_is_the_parent_all_the_same() -> None:
    steering: Any = SimpleNamespace(pinned=0, dropped=set())
    parents = SteeredParents(SimpleNamespace(select_candidate_idx=lambda _state: 1), steering, behind_best)
    assert parents.select_candidate_idx(pool(SEED, BEST)) == 0
