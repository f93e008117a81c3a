"""The best candidates of a search, and the one that further rows choose."""

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from statistics import fmean, stdev
from typing import Any

import orjson

from gepa_client.errors import JournalError
from gepa_client.journal.answer_entries import TiedCandidate, TieDecision, part_of_ties
from gepa_client.journal.entries import CandidateRecord
from gepa_client.journal.store import Store

MOST = 4
"""Candidates that are compared at most."""


def best_of(scores: Sequence[float], dropped: Set[int]) -> int:
    """Return the first candidate with the highest score of those that are not dropped."""
    return max(
        (index for index in range(len(scores)) if index not in dropped), key=lambda index: (scores[index], -index)
    )


def tied(scores: Sequence[Mapping[Any, float]], dropped: Set[int] = frozenset()) -> list[int]:
    """Return the candidates that tie with the best by mean score, the best first; only itself if none does.

    `scores`: of each candidate by row. `dropped`: candidates that are out. Of equal scores on all rows the first
    candidate alone counts.
    """
    means = [fmean(each.values()) for each in scores]
    order = sorted(set(range(len(scores))) - dropped, key=lambda index: (-means[index], index))
    best, found = scores[order[0]], [order[0]]
    for index in order[1:]:
        other = scores[index]
        if len(found) == MOST:
            break
        if ties_with(best, other) and all(other != scores[each] for each in found):
            found.append(index)
    return found


def ties_with(best: Mapping[Any, float], other: Mapping[Any, float]) -> bool:
    """Return whether the best candidate leads by at most one standard error of the paired differences.

    `best`, `other`: scores by row. Candidates with scores on other rows, or on a single one, do not tie.

    Source: the rule of one standard error of Breiman, Friedman, Olshen and Stone, Classification and Regression Trees
    (1984), section 3.4.3, with that of paired differences.
    """
    if len(best) < 2 or other.keys() != best.keys():
        return False
    differences = [best[row] - other[row] for row in best]
    return fmean(differences) <= stdev(differences) / math.sqrt(len(differences))


def finalists(
    scores: Sequence[Mapping[Any, float]], dropped: Set[int] = frozenset(), *, ties: bool, seed: bool
) -> list[int]:
    """Return the candidates that are compared on fresh rows, the best by mean score first.

    `scores`, `dropped`: as of `tied`. `ties`: whether those that tie with the best one are compared. `seed`: whether
    the seed is compared too; it comes last unless it ties.
    """
    found = tied(scores, dropped) if ties else tied(scores, dropped)[:1]
    return [*found[: MOST - 1], 0] if seed and 0 not in found and 0 not in dropped else found


def decide(
    validation: Mapping[int, Sequence[float]], fresh: Mapping[int, Sequence[float]], validation_left: int = 0
) -> TieDecision:
    """Decide between candidates by their scores on the validation rows of the search and on fresh rows, by index.

    `validation_left`: how many of the fresh rows are validation rows.
    """
    candidates = [
        TiedCandidate(
            index=index,
            validation=fmean(validation[index]),
            fresh=fmean(fresh[index]),
            mean=math.fsum([*validation[index], *fresh[index]]) / (len(validation[index]) + len(fresh[index])),
        )
        for index in validation
    ]
    best = max(candidates, key=lambda each: (each.mean, -each.index))
    rows = len(fresh[best.index])
    return TieDecision(
        best=best.index,
        validation_rows=len(validation[best.index]),
        rows=rows,
        candidates=candidates,
        validation_left=validation_left,
    )


def best_candidate(store: Store, run_id: str, candidates: Sequence[CandidateRecord]) -> CandidateRecord | None:
    """Return the best candidate of a run's pool: that of the decision between tied ones if the run made one.

    Else the first with the highest mean score of those that no user dropped, as GEPA does; None if there is none.
    """
    out = dropped_of(candidates)
    found = recorded_decision(store, run_id, candidates)
    if found is not None:
        chosen = next((kept for kept in candidates if kept.index == found.best), None)
        if chosen is None:
            raise JournalError(f"run {run_id}: the decision between tied candidates names {found.best}, which is none")
        return chosen
    return max((kept for kept in candidates if kept.index not in out), key=lambda kept: kept.score, default=None)


def ancestry(candidates: Sequence[CandidateRecord], last: CandidateRecord) -> set[int]:
    """Return the index of a candidate and those of all that it descends from."""
    found, left = set[int](), [last.index]
    while left:
        if (index := left.pop()) not in found:
            found.add(index)
            left += candidates[index].parents
    return found


def dropped_of(candidates: Iterable[CandidateRecord]) -> set[int]:
    """Return the indices of the candidates that users dropped."""
    return {kept.index for kept in candidates if kept.dropped is not None}


def pool_at(candidates: Sequence[CandidateRecord], until: int | None) -> list[CandidateRecord]:
    """Return the candidates of the pool before this number of the journal, as they were then; None for all."""
    if until is None:
        return list(candidates)
    return [
        kept if kept.dropped is None or kept.dropped < until else replace(kept, dropped=None)
        for kept in candidates
        if kept.number <= until
    ]


def recorded_decision(store: Store, run_id: str, candidates: Sequence[CandidateRecord]) -> TieDecision | None:
    """Return the recorded decision between the tied ones of these candidates, all of a pool; None if there is none."""
    part = part_of_ties(len(candidates), dropped=len(dropped_of(candidates)))
    entries = store.entries(run_id, part, 1, 1)
    return TieDecision.model_validate(orjson.loads(entries[0].answer)) if entries else None
