"""How much of the spread of scores is the program's own, and which difference between two candidates so many rows show.

The rows are scored once each.
"""

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, variance
from typing import Any

from gepa_client.analysis.paired_comparison import least

ALIKE = 0.5
"""The correlation of two candidates' true scores over the rows. A change of a text leaves most rows as they were, so
that rows that are hard stay hard; 0 would be two candidates that have nothing in common."""

MOST = 1 << 20
"""Rows beyond which none are counted as enough."""


SPREADS, RESERVE = 1.1, 1.4
"""Of the bet on bounded differences: how many times the spread of the exact test it needs, and the share of one row's
largest difference that the mean must exceed it by besides. Fitted: `benchmarks/certificate.py` compares them."""


@dataclass(frozen=True, slots=True)
class Noise:
    """Variances of one candidate's scores.

    `within`: of one row's score if it is evaluated again. `between`: of the rows' true means. `repeats`: the fewest of
    a row. If no row was repeated, all variance counts as `between`, and `within` is 0.
    """

    rows: int
    repeats: int
    within: float
    between: float

    @property
    def deterministic(self) -> bool:
        """Whether each row had the same score whenever it was evaluated, and was evaluated at least twice."""
        return self.repeats > 1 and self.within == 0.0

    def noise_of_mean(self, rows: int, repeats: int) -> float:
        """Return the standard deviation of the mean over the same rows if all are evaluated again."""
        return math.sqrt(self.within / (rows * repeats))


def noise_of(scores: Sequence[Sequence[float]]) -> Noise:
    """Return the variances that explain the scores of one candidate, by row and repeat.

    Analysis of variance with one random effect: `within` is pooled over the rows, `between` is what the variance of
    the rows' means has beyond it, at least 0.

    Source: Searle, Casella and McCulloch, Variance Components (1992), chapter 3.

    Raises:
        ValueError: fewer than two rows, or a row without a score.
    """
    if len(scores) < 2:
        raise ValueError(f"{len(scores)} rows show no variance between rows: give at least 2")
    if not all(scores):
        raise ValueError(f"row {next(at for at, row in enumerate(scores) if not row)} has no score")
    repeated = [row for row in scores if len(row) > 1]
    freedom = sum(len(row) - 1 for row in repeated)
    within = math.fsum(variance(row) * (len(row) - 1) for row in repeated) / freedom if freedom else 0.0
    of_means = variance([fmean(row) for row in scores])
    of_noise = within * fmean([1 / len(row) for row in scores])
    return Noise(rows=len(scores), repeats=min(map(len, scores)), within=within, between=max(of_means - of_noise, 0.0))


def variance_of_difference(noise: Noise, gain: float, size: float = 1.0) -> float:
    """Return the variance of one row's difference between the seed and a candidate that is `gain` better.

    That of two candidates whose true scores correlate as `ALIKE`; that of the rows which make up the gain, half of
    which now win and half of which no longer lose; and the noise of both. It is at least that
    of a gain by rows that win `size` while none loses: a seed that fails on all rows shows no variance at all.
    """
    lifted = max(gain * (size - gain), 0.0)
    return max(2 * (1 - ALIKE) * noise.between + lifted / 2, lifted) + 2 * noise.within


def chance(
    noise: Noise, gain: float, rows: int, *, error: float = 0.05, size: float = 1.0, exact: bool = True
) -> float:
    """Return the chance that a two-sided paired test at `error` shows that gain.

    `size`: the largest difference of a row. `exact`: whether the scores are the two ends of their range, so that the
    test is McNemar's; else it is the bet on bounded differences.

    Sources: Connor, Sample size for testing differences in proportions for the paired-sample design, Biometrics 43
    (1987), with the variance of any scores in place of that of proportions; and the correction for continuity of the
    exact test, one row's largest difference (Edwards, Psychometrika 13 (1948)).
    """
    variance = variance_of_difference(noise, gain, size)
    spread, normal = math.sqrt(variance / rows), NormalDist().inv_cdf(1 - error / 2)
    second_moment = variance + gain * gain
    wealth = math.log(2 / error)
    if exact:
        beyond = gain - size / rows - normal * math.sqrt(second_moment / rows)
    elif rows * second_moment > 2 * wealth * size * size:
        beyond = gain - RESERVE * size / rows - SPREADS * normal * spread
    else:  # each bet is on all of the wealth, which grows by its logarithm
        beyond = gain - second_moment / (2 * size) - size * wealth / rows
    return NormalDist().cdf(beyond / spread) if spread else float(beyond >= 0)


def smallest_gain(noise: Noise, rows: int, *, power: float = 0.8, size: float = 1.0, **test: Any) -> float:
    """Return the smallest gain of the mean score that a paired test shows with chance `power`; `test`: as `chance`.

    It is infinite if there are too few rows to show any.
    """
    return least(0.0, size, lambda gain: chance(noise, gain, rows, size=size, **test) >= power, 1e-6)


def rows_needed(noise: Noise, gain: float, *, power: float = 0.8, **test: Any) -> int | None:
    """Return how many rows show a gain of that size with chance `power`; None if no number of them does."""
    found = bisect.bisect_left(range(MOST + 1), power, lo=1, key=lambda rows: chance(noise, gain, rows, **test))
    return found if found <= MOST else None
