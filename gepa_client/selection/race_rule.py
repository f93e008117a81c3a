"""The rule by which a race drops proposals: those that will hardly be the best of the pool.

A proposal is compared, row by row, with targets whose mean is that of the best candidate of the pool (`targets`). The
claim "over all validation rows it is at least as good" is tested after every row by a bet, which stays valid however
often one looks. It needs rows in random order (`race_order`) and a score that none exceeds. If a proposal exceeds that
score, its own best one takes its place, and the error level holds approximately.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gepa_client.analysis.statistics.confidence_sequences import wealth

ERROR = 0.9
"""The chance, at most, that a proposal is dropped that over all rows is exactly as good as the best candidate.

It is large because an equal is no gain, the next proposal is cheap, and a survivor costs all validation rows: decision
0022 has what other levels give.
"""

CERTAIN = 1e12
"""The most evidence there is: JSON has no infinity."""


@dataclass(frozen=True)
class DropDecision:
    """Whether a proposal is dropped, and the numbers behind it.

    `mean`: of the differences to the targets so far, 0 before the first. `evidence`: that it is worse; at 1 / `ERROR`
    it is dropped.
    """

    drops: bool
    mean: float
    evidence: float


def race_order(row_ids: Sequence[int], seed: int, race: int) -> list[int]:
    """Return the validation rows in random order.

    `row_ids`: GEPA's, of the validation rows of the search. `race`: the number of the race within the run. Each race
    has an order of its own: in an order that all share, the best of the pool would have won its own race by its luck on
    the first rows.
    """
    return random.Random(f"{seed} {race}").sample(row_ids, len(row_ids))  # noqa: S311 - no secret


def targets(pool: Sequence[Mapping[int, float]], parent: Mapping[int, float]) -> dict[int, float]:
    """Return what a proposal is compared with on each validation row.

    It is the mean of the scores of its parent and of the best candidate, plus a constant by which the mean over all
    rows is that of the best one. A proposal fails on rows where its parent fails, so it differs less from these targets
    than from the best candidate's own scores, and fewer rows decide.

    `pool`: the validation scores of each candidate that counts, by row id. `parent`: those of the parent.
    """
    best = max(pool, key=_mean)
    raised = (_mean(best) - _mean(parent)) / 2
    return {row_id: (score + parent[row_id]) / 2 + raised for row_id, score in best.items()}


def drop_decision(own: Sequence[float], targeted: Sequence[float], highest: float) -> DropDecision:
    """Return the decision on a proposal by its scores on the validation rows raced so far, in the order of the race.

    `targeted`: what it is compared with on all validation rows, in the same order. `highest`: what no score should
    exceed, the perfect score or the highest one of the pool.
    """
    unit = _unit([highest, *own, *targeted])
    scores, targeted = ([score / unit for score in each] for each in (own, targeted))
    differences = [score - target for score, target in zip(scores, targeted, strict=False)]
    largest = max([highest / unit, *scores]) - min(targeted)
    evidence = min(CERTAIN, wealth(differences, len(targeted), 0.0, largest))
    mean = unit * sum(differences) / max(1, len(differences))
    return DropDecision(evidence >= 1 / ERROR, mean, evidence)


def _mean(scores: Mapping[int, float]) -> float:
    return sum(scores.values()) / len(scores)


def _unit(scores: Sequence[float]) -> float:
    """Return a power of two, so that scores in it keep all their digits and are less than 2."""
    return math.ldexp(1.0, math.frexp(max(map(abs, scores)))[1] - 1)
