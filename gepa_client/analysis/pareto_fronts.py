"""Which candidates are best at what, from the pool a store keeps, by GEPA's own rules."""

from collections.abc import Sequence

from gepa_client.journal.entries import CandidateRecord


def by_row(candidates: Sequence[CandidateRecord]) -> dict[str, set[int]]:
    """For each validation row, by GEPA's id as text, the candidates that score best there."""
    return _fronts([kept.scores for kept in candidates])


def by_objective(candidates: Sequence[CandidateRecord]) -> dict[str, set[int]]:
    """For each objective the candidates whose mean is best; empty where the program names none."""
    return _fronts([kept.objective_scores or {} for kept in candidates])


def front(candidates: Sequence[CandidateRecord], frontier_type: str = "instance") -> set[int]:
    """Every candidate on the front that the run selects from.

    For `cartesian` (best per row and objective, of which only means are kept) the candidates best at a row or at an
    objective as a whole.
    """
    rows = by_row(candidates) if frontier_type != "objective" else {}
    objectives = by_objective(candidates) if frontier_type != "instance" else {}
    return set().union(*rows.values(), *objectives.values())


def best(candidates: Sequence[CandidateRecord]) -> CandidateRecord | None:
    """Return the first candidate with the highest mean score, as GEPA does; None if there is none."""
    return max(candidates, key=lambda kept: kept.score, default=None)


def _fronts(scored: Sequence[dict[str, float]]) -> dict[str, set[int]]:
    highest: dict[str, float] = {}
    found: dict[str, set[int]] = {}
    for index, scores in enumerate(scored):
        for key, score in scores.items():
            if key not in highest or score > highest[key]:
                highest[key], found[key] = score, {index}
            elif score == highest[key]:
                found[key].add(index)
    return found
