"""Which candidates of a raced search are parents: those that tie with the best one."""

from collections.abc import Set
from typing import Any

from gepa.core.state import GEPAState

from gepa_client.analysis.ties import best_of, ties_with


def behind_best(state: GEPAState[Any, Any], dropped: Set[int]) -> set[int]:
    """Return the candidates that are no parents: the best one leads them by more than one standard error.

    GEPA's Pareto selection draws each candidate that is not dominated as often as it is among the best on a row. If
    scores are 0 or 1, most candidates are among the best on most rows, so that most parents would be far behind the
    best one. If the fronts have objectives, the candidates with the highest mean of an objective remain parents.

    `dropped`: candidates that users dropped; none of them is compared or returned.
    """
    scores = state.prog_candidate_val_subscores
    best = best_of(state.program_full_scores_val_set, dropped)
    kept = {best, *dropped}
    if state.frontier_type != "instance":
        kept.update(*state.program_at_pareto_front_objectives.values())
    return {index for index, each in enumerate(scores) if index not in kept and not ties_with(scores[best], each)}
