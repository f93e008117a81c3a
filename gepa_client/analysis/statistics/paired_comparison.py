"""Whether one candidate is better than another by their scores on the same rows, and by how much."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from gepa_client.analysis.statistics import student_t
from gepa_client.analysis.statistics.bounded_mean import mean_test

EXACT = "McNemar's exact test; interval: Student's t with Agresti and Min's added rows"
BOUNDED = "bet on the mean of bounded differences; interval: the means that the same test does not reject"


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
    first: Sequence[Sequence[float]],
    second: Sequence[Sequence[float]],
    *,
    score_range: tuple[float, float] = (0.0, 1.0),
    error: float = 0.05,
) -> PairedComparison:
    """Compare two candidates. The scores are by row, then by repeat; a row counts by its mean over the repeats.

    `score_range`: the lowest and the highest score that there can be. `error`: a second candidate that is no better is
    found better with at most this probability, for any distribution of scores; one that is no worse likewise. If each
    row's mean is one of the two ends of the range, the test is McNemar's; else it is valid for any scores of the range.
    Each side of both has half of the error, as the scores choose between them.

    The order of the rows must not follow from their scores.

    Raises:
        ValueError: fewer than two rows, not the same rows, a row without a score, or a score outside the range.
    """
    if len(first) != len(second):
        raise ValueError(f"the candidates have scores of {len(first)} and {len(second)} rows: compare the same rows")
    if len(first) < 2:
        raise ValueError(f"{len(first)} rows cannot be compared: give at least 2")
    for row, (one, other) in enumerate(zip(first, second, strict=True)):
        if not one or not other:
            raise ValueError(f"row {row} has no score of the {'second' if one else 'first'} candidate")
    lowest, highest = score_range
    outside = [each for rows in (first, second) for row in rows for each in row if not lowest <= each <= highest]
    if outside:
        raise ValueError(f"a score of {outside[0]:g} is not from {lowest:g} to {highest:g}")
    size = highest - lowest
    before, after = [fmean(row) for row in first], [fmean(row) for row in second]
    differences = [other - one for one, other in zip(before, after, strict=True)]
    if {*before, *after} <= {lowest, highest}:
        low, high = interval(differences, 1 - error, spread=size)
        p_value, method = mcnemar_p(differences), EXACT
    else:
        found = mean_test([max(-size, min(each, size)) for each in differences], size, error)
        low, high, p_value, method = found.low, found.high, found.p_value, BOUNDED
    return PairedComparison(
        rows=len(differences),
        difference=fmean(differences),
        low=max(low, -size),
        high=min(high, size),
        confidence=1 - error,
        p_value=p_value,
        method=method,
    )


def interval(differences: Sequence[float], confidence: float, *, spread: float = 1.0) -> tuple[float, float]:
    """Return the interval of the mean of one difference a row.

    Student's t over the rows and two more: half of one that wins, half of one that loses, and one that ties. A win's
    size is the root mean square of the differences that are not 0, or `spread` if all are 0. Without the added rows
    the interval is too narrow where few rows differ.

    Source: Agresti and Min, Effects and non-effects of paired identical observations in comparing proportions with
    binary matched-pairs data, Statistics in Medicine 23 (2004).
    """
    squares = [each * each for each in differences if each]
    rows = len(differences) + 2
    mean = math.fsum(differences) / rows
    added = fmean(squares) if squares else (spread or 1.0) ** 2
    variance = (math.fsum(squares) + added - rows * mean * mean) / (rows - 1)
    half = student_t.quantile((1 + confidence) / 2, rows - 1) * math.sqrt(variance / rows)
    return mean - half, mean + half


def mcnemar_p(differences: Sequence[float]) -> float:
    """Return the two-sided p-value of as many rows that win as rows that lose, by the signs of their differences.

    Source: McNemar, Note on the sampling error of the difference between correlated proportions, Psychometrika 12
    (1947); exact by the binomial distribution.
    """
    wins, losses = sum(each > 0 for each in differences), sum(each < 0 for each in differences)
    unequal = wins + losses
    ways = tail = 1
    for fewer in range(min(wins, losses)):
        ways = ways * (unequal - fewer) // (fewer + 1)
        tail += ways
    return min(1.0, 2 * tail / (1 << unequal))
