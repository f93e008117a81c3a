"""GEPA's pool without the candidates that users dropped."""

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from gepa.core.state import GEPAState

State = GEPAState[Any, Any]


class PoolWithout:
    """A `GEPAState` without some candidates, as candidate selectors and stop conditions read it.

    `indices`: those of the candidates that are left. Everything but the members below is the state's own.
    """

    def __init__(self, state: State, dropped: Set[int]) -> None:
        self._state = state
        self.indices = [index for index in range(len(state.program_candidates)) if index not in dropped]

    @property
    def program_candidates(self) -> list[dict[str, str]]:
        """The texts of the candidates that are left."""
        return self._left(self._state.program_candidates)

    @property
    def program_full_scores_val_set(self) -> list[float]:
        """Their mean validation scores."""
        return self._left(self._state.program_full_scores_val_set)

    @property
    def per_program_tracked_scores(self) -> list[float]:
        """The scores that Pareto selection weighs them by."""
        return self._left(self._state.per_program_tracked_scores)

    def get_pareto_front_mapping(self) -> dict[Any, set[int]]:
        """Return which of them are best, by row or objective; the best one by mean score if no front has any."""
        places = {index: place for place, index in enumerate(self.indices)}
        found = {
            key: {places[index] for index in front if index in places}
            for key, front in self._state.get_pareto_front_mapping().items()
        }
        fronts = {key: front for key, front in found.items() if front}
        scores = self.program_full_scores_val_set
        return fronts or {"best": {scores.index(max(scores))}}

    def _left(self, values: Sequence[Any]) -> list[Any]:
        return [values[index] for index in self.indices]

    def __getattr__(self, name: str) -> Any:
        """Return what the state has."""
        return getattr(self._state, name)


def leave_fronts(state: State, index: int, dropped: Set[int]) -> None:
    """Take a candidate off the Pareto fronts, so that neither selection nor merges make it a parent.

    Where it was the only one, the best of the candidates that are not `dropped` take its place. For fronts of rows and
    objectives together GEPA keeps no scores of the others, so such a place is empty until the next candidate.
    """
    _leave(
        state.pareto_front_valset,
        state.program_at_pareto_front_valset,
        index,
        state.prog_candidate_val_subscores,
        dropped,
    )
    _leave(
        state.objective_pareto_front,
        state.program_at_pareto_front_objectives,
        index,
        state.prog_candidate_objective_scores,
        dropped,
    )
    _leave(state.pareto_front_cartesian, state.program_at_pareto_front_cartesian, index, (), dropped)


def _leave(
    highest: dict[Any, float],
    fronts: dict[Any, set[int]],
    index: int,
    scores: Iterable[Mapping[Any, float]],
    dropped: Set[int],
) -> None:
    kept = [(each, found) for each, found in enumerate(scores) if each not in dropped and each != index]
    for key in [key for key, front in fronts.items() if index in front]:
        fronts[key].discard(index)
        if fronts[key]:
            continue
        left = {each: found[key] for each, found in kept if key in found}
        if left:
            highest[key] = max(left.values())
            fronts[key] = {each for each, score in left.items() if score == highest[key]}
        else:
            del highest[key], fronts[key]
