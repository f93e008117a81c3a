"""Which difference between two candidates so many rows and repeats can show."""

import math
from collections.abc import Callable
from statistics import NormalDist

from gepa_client.analysis.statistics.noise import Noise

ALIKE = 0.5
"""The correlation of two candidates' true scores over the rows. A change of a text leaves most rows as they were, so
that rows that are hard stay hard; 0 would be two candidates that have nothing in common."""

MOST = 1 << 20
"""Rows or repeats beyond which none are counted as enough."""


def variance_of_difference(noise: Noise, gain: float, repeats: int) -> float:
    """Return the variance of one row's difference between the seed and a candidate that is `gain` better.

    That of two candidates whose true scores correlate as `ALIKE`; that of the rows which make up the gain, half of
    which now win and half of which no longer lose; and the noise of both. It is at least that
    of a gain by rows that win 1 while none loses: a seed that fails on all rows shows no variance at all.
    """
    lifted = max(gain * (1 - gain), 0.0)
    return max(2 * (1 - ALIKE) * noise.between + lifted / 2, lifted) + 2 * noise.within / repeats


def chance(noise: Noise, gain: float, rows: int, repeats: int, *, error: float = 0.05) -> float:
    """Return the chance that a two-sided paired test at `error` shows that gain.

    Sources: Connor, Sample size for testing differences in proportions for the paired-sample design, Biometrics 43
    (1987), with the variance of any scores in place of that of proportions; and the correction for continuity of the
    exact test, one step of one row's score (Edwards, Psychometrika 13 (1948)).
    """
    variance = variance_of_difference(noise, gain, repeats)
    beyond = (gain - 1 / (rows * repeats)) * math.sqrt(rows)
    beyond -= NormalDist().inv_cdf(1 - error / 2) * math.sqrt(variance + gain * gain)
    return NormalDist().cdf(beyond / math.sqrt(variance)) if variance else float(beyond >= 0)


def smallest_gain(noise: Noise, rows: int, repeats: int, *, error: float = 0.05, power: float = 0.8) -> float:
    """Return the smallest gain of the mean score that a paired test shows with chance `power`.

    It is infinite if there are too few rows to show any.
    """
    low, high = 0.0, 1.0
    while chance(noise, high, rows, repeats, error=error) < power:
        low, high = high, 2 * high
        if math.isinf(high):
            return high
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if chance(noise, middle, rows, repeats, error=error) < power else (low, middle)
    return high


def rows_needed(noise: Noise, gain: float, repeats: int, *, error: float = 0.05, power: float = 0.8) -> int | None:
    """Return how many rows show a gain of that size with chance `power`; None if no number of them does."""
    return _fewest(lambda rows: chance(noise, gain, rows, repeats, error=error) >= power)


def repeats_needed(noise: Noise, gain: float, rows: int, *, error: float = 0.05, power: float = 0.8) -> int | None:
    """Return how many repeats of each row show a gain of that size; None if no number of them does."""
    return _fewest(lambda repeats: chance(noise, gain, rows, repeats, error=error) >= power)


def _fewest(enough: Callable[[int], bool]) -> int | None:
    """Return the smallest number that is enough, if a larger one always is too."""
    high = 1
    while not enough(high):
        high *= 2
        if high > MOST:
            return None
    low = high // 2  # not enough, or 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
