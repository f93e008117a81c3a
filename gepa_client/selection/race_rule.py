"""The rule of a race: its order and blocks of rows, with what a proposal is compared, and when its scores drop it."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ERROR = 0.9
"""The chance, at most, that a proposal is dropped that over all rows is exactly as good as the best candidate.

It is large because an equal is no gain, the next proposal is cheap, and a survivor costs all validation rows: decision
0022 has what other levels give.
"""

CERTAIN = 1e12
"""The most evidence there is: JSON has no infinity."""

LEAST_BLOCK = 5
"""Rows of the smallest block."""

BLOCKS_PER_FLEET = 8
"""How many blocks fill the slots of a large fleet."""

AHEAD = 1.75
"""Examples for each slot that are begun after the rows of a decision: with 2 to 6 s each, every slot stays busy."""


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


def rows_ahead(racing: int, slots: int) -> int:
    """Return the rows that are begun after those of a decision; one slot has none to keep busy meanwhile.

    `racing`: how many proposals race.
    """
    return math.ceil(AHEAD * slots / racing) if slots > 1 else 0


def rows_begun(compared: int, racing: int, slots: int) -> int:
    """Return how many rows are begun once a decision on so many of them is made; 0 if no proposal races any more."""
    if not racing:
        return 0
    return compared + rows_ahead(racing, slots) + max(LEAST_BLOCK, math.ceil(slots / BLOCKS_PER_FLEET / racing))


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

    It is dropped if it will hardly be the best of the pool. The claim "over all validation rows it is at least as good
    as the targets", whose mean is that of the best candidate, is tested after every row by a bet, which stays valid
    however often one looks. It needs rows in random order (`race_order`) and a score that none exceeds. If a proposal
    exceeds that score, its own best one takes its place, and the error level holds approximately.

    `targeted`: what it is compared with on all validation rows, in the same order. `highest`: what no score should
    exceed, the perfect score or the highest one of the pool.
    """
    unit = _unit([highest, *own, *targeted])
    scores, targeted = ([score / unit for score in each] for each in (own, targeted))
    differences = [score - target for score, target in zip(scores, targeted, strict=False)]
    largest = max([highest / unit, *scores]) - min(targeted)
    evidence = min(CERTAIN, wealth(differences, len(targeted), largest))
    mean = unit * sum(differences) / max(1, len(differences))
    return DropDecision(evidence >= 1 / ERROR, mean, evidence)


def _mean(scores: Mapping[int, float]) -> float:
    return sum(scores.values()) / len(scores)


def _unit(scores: Sequence[float]) -> float:
    """Return a power of two, so that scores in it keep all their digits and are less than 2."""
    return math.ldexp(1.0, math.frexp(max(map(abs, scores)))[1] - 1)


SHARES = (0.02, 0.05, 0.1, 0.2)
"""Of the wealth that each bet puts on a row: small ones find small differences, large ones large differences soon."""


def wealth(values: Sequence[float], population: int, highest: float) -> float:
    """Return the largest wealth so far of the bet against a population mean of at least 0; at least 1.

    Values are drawn in random order without replacement, and before each one a share of the wealth is put on its being
    less than the claim expects of those that are left. If the claim is true, the wealth is a supermartingale and
    exceeds 1 / error with a probability of at most `error`, however often one looks (Ville's inequality). The shares
    are fixed and the wealth is their mean, so there is nothing to choose. Only a highest value is needed: a value that
    is lower than any before makes the wealth larger, but never negative. Source: Waudby-Smith and Ramdas, "Estimating
    means of bounded random variables by betting", JRSS B 86 (2024), section 5.

    `values`: in the order they were drawn. `population`: how many there are in all. `highest`: no value exceeds it.
    It is infinite if the values left cannot bring the mean to 0.
    """
    bets = [1.0] * len(SHARES)
    left = population * highest  # by how much the values yet to come may fall short of the highest, in all
    most = 1.0
    slack = 1e-9 * max(1.0, abs(left))  # sums of floats
    for drawn, value in enumerate(values):
        shortfall = highest - value
        expected = left / (population - drawn)
        if expected > slack:
            ratio = shortfall / expected
            bets = [bet * (1 - share + share * ratio) for bet, share in zip(bets, SHARES, strict=True)]
            most = max(most, sum(bets) / len(bets))
        left -= shortfall
        if left < -slack:
            return math.inf
    return most
