"""Whether one candidate is better than another by their scores on the same rows, and by how much."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import fmean

from gepa_client.analysis.statistics import student_t

LARGEST_DENOMINATOR = 1_000_000
"""A score that is a fraction with at most this denominator is taken as that fraction: 0.1 + 0.2 equals 0.3."""

COUNT_BITS = 1 << 23
"""The size of the counts of all sums of differences. Differences that would need more are rounded to a grid that does
not: the p-value is then exact for the rounded differences. With 300 rows the grid has 27,000 steps."""


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """A second candidate against a first one, on the same rows.

    `difference`: the mean over the rows, second minus first. `low` to `high`: its interval at `confidence`, for rows
    drawn as these were. `p_value`: two-sided, of no difference between the two. `method`: of both, in words.
    """

    rows: int
    difference: float
    low: float
    high: float
    confidence: float
    p_value: float
    method: str


def compare(
    first: Sequence[Sequence[float]], second: Sequence[Sequence[float]], *, confidence: float = 0.95
) -> PairedComparison:
    """Compare two candidates. The scores are by row, then by repeat; a row counts by its mean over the repeats.

    Give both candidates as many repeats of a row: the p-value is exact for these alone.

    Raises:
        ValueError: fewer than two rows, not the same rows, or a row without a score.
    """
    if len(first) != len(second):
        raise ValueError(f"the candidates have scores of {len(first)} and {len(second)} rows: compare the same rows")
    if len(first) < 2:
        raise ValueError(f"{len(first)} rows cannot be compared: give at least 2")
    for row, (one, other) in enumerate(zip(first, second, strict=True)):
        if not one or not other:
            raise ValueError(f"row {row} has no score of the {'second' if one else 'first'} candidate")
    differences = [_mean(other) - _mean(one) for one, other in zip(first, second, strict=True)]
    every = [score for rows in (first, second) for row in rows for score in row]
    low, high = interval([float(each) for each in differences], confidence, spread=max(every) - min(every))
    binary = len({abs(each) for each in differences if each}) <= 1
    return PairedComparison(
        rows=len(differences),
        difference=float(sum(differences) / len(differences)),
        low=low,
        high=high,
        confidence=confidence,
        p_value=sign_flip_p(differences),
        method=f"exact {'McNemar' if binary else 'sign-flip'} test; Student's t with Agresti and Min's added rows",
    )


def interval(differences: Sequence[float], confidence: float, *, spread: float = 1.0) -> tuple[float, float]:
    """Return the interval of the mean of one difference a row.

    Student's t over the rows and two more: half of one that wins, half of one that loses, and one that ties. A win's
    size is the root mean square of the differences that are not 0, or `spread` if all are 0. Without the added rows
    the interval is too narrow where few rows differ.

    Source: Agresti and Min, Effects and non-effects of paired identical observations in comparing proportions with
    binary matched-pairs data, Statistics in Medicine 23 (2004), for scores of 0 and 1; here for any scores.
    """
    squares = [each * each for each in differences if each]
    rows = len(differences) + 2
    mean = math.fsum(differences) / rows
    added = fmean(squares) if squares else (spread or 1.0) ** 2
    variance = (math.fsum(squares) + added - rows * mean * mean) / (rows - 1)
    half = student_t.quantile((1 + confidence) / 2, rows - 1) * math.sqrt(variance / rows)
    return mean - half, mean + half


def sign_flip_p(differences: Sequence[float | Fraction]) -> float:
    """Return the two-sided p-value of no difference, given one difference a row.

    If the two candidates are alike, each difference may have had the other sign. The p-value is the share of all
    2^rows choices of signs whose sum is at least as far from 0 as the observed one. It is counted exactly, as the
    coefficients of the product of (1 + x^|difference|), in one integer with a field of rows + 1 bits for each power
    of x. With scores of 0 and 1 it is McNemar's exact test.

    Sources: Fisher, The Design of Experiments (1935), section 21; Pagano and Tritchler, On obtaining permutation
    distributions in polynomial time, Journal of the American Statistical Association 78 (1983).
    """
    steps = _whole([Fraction(each) for each in differences])
    observed, width = abs(sum(steps)), len(steps) + 1
    if not observed:
        return 1.0
    counts = 1
    for step in map(abs, steps):
        counts += counts << (step * width)
    least = (sum(map(abs, steps)) + observed) // 2  # of the sum of those that are positive
    extreme = (counts >> (least * width)) % ((1 << width) - 1)  # the sum of the fields that are left
    return float(min(Fraction(2 * extreme, 1 << len(steps)), Fraction(1)))


def _whole(differences: list[Fraction]) -> list[int]:
    """Return the differences in steps of a grid that holds them all, or of the finest that there is room for."""
    step = Fraction(1, math.lcm(*(each.denominator for each in differences)))
    total = sum(map(abs, differences), Fraction(0))
    step = max(step, total * (len(differences) + 1) / COUNT_BITS)
    steps = [round(each / step) for each in differences]
    common = math.gcd(*steps) or 1
    return [each // common for each in steps]


def _mean(scores: Sequence[float]) -> Fraction:
    return sum(map(_fraction, scores), Fraction(0)) / len(scores)


def _fraction(score: float) -> Fraction:
    exact = Fraction(score)
    if exact.denominator <= LARGEST_DENOMINATOR:
        return exact
    simple = exact.limit_denominator(LARGEST_DENOMINATOR)
    return simple if float(simple) == score else exact
