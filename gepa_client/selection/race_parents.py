"""Which candidates of a raced pool are parents: those that have not clearly lost against the best one."""

from collections.abc import Set
from typing import Any

from gepa.core.state import GEPAState

from gepa_client.analysis.ties import best_of, ties_with


def outclassed(state: GEPAState[Any, Any], dropped: Set[int]) -> set[int]:
    """Return the candidates that the best one leads by more than one standard error: they are parents no more.

    GEPA's Pareto selection draws each candidate as often as it is among the best on a row. With scores of 0 and 1
    nearly every candidate is among the best on most rows, so that most proposals would be of parents that were beaten
    long ago. A candidate that is the best by the mean of an objective remains a parent if the fronts have objectives.

    `dropped`: candidates that users dropped, none of which is the best.
    """
    scores = state.prog_candidate_val_subscores
    best = best_of(state.program_full_scores_val_set, dropped)
    kept = {best, *dropped}
    if state.frontier_type != "instance":
        kept.update(*state.program_at_pareto_front_objectives.values())
    return {index for index, each in enumerate(scores) if index not in kept and not ties_with(scores[best], each)}
