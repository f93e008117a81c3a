"""Whether one candidate is better than another by their scores on the same rows, and by how much.

Scores that are the two ends of their range have McNemar's test; others one that is valid for every distribution: a bet
against the claim "the mean is at most m": before each value, a share of the wealth is put on its being more than
the claim expects. If the claim is true, the wealth is expected to stay what it was at most, so it is 1 / error or more
with a probability of at most `error` (Markov's inequality), for any distribution. A rare large loss that may not
have been seen yet limits what small gains can earn.

The shares decide only about the power. Each is the one that reaches the target in the values that are left, by the
spread of the values before it. The values come in several orders, and the wealth is the mean over these, so that the
result hardly depends on the order: each bet aims at twice the wealth that is needed, as not every order reaches it.

Sources: Waudby-Smith and Ramdas, Estimating means of bounded random variables by betting, JRSS B 86 (2024), for the
bet and the mean over orders; Voracek and Orabona, STaR-Bets: Sequential target-recalculating bets for tighter
confidence intervals, NeurIPS (2025), for the shares.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean

EXACT = "McNemar's exact test; interval: Student's t with Agresti and Min's added rows"
BOUNDED = "bet on the mean of bounded differences; interval: the means that the same test does not reject"

ORDERS, STEPS = 8, 10_000
"""Orders of few values, and the bets of a test that more values have in fewer orders, so that none takes long."""

BISECTIONS = 20

LEAST_ERROR = 1e-12
"""Below which no error is looked for."""

SMALLEST = -1 + 1e-6
"""A mean up to which no lower one is looked for."""


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
    half = t_quantile((1 + confidence) / 2, rows - 1) * math.sqrt(variance / rows)
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


@dataclass(frozen=True, slots=True)
class MeanTest:
    """`low` to `high`: the means that are not rejected at the error. `p_value`: the least error that rejects 0."""

    low: float
    high: float
    p_value: float


def mean_test(values: Sequence[float], size: float, error: float) -> MeanTest:
    """Test the mean of values from -`size` to `size`; two-sided, each side at half of `error`.

    The values were drawn alike and independently, and their order does not depend on them. 0 lies between `low` and
    `high` unless it is rejected at `error`: then `p_value` is at most `error`.

    Raises:
        ValueError: a value is beyond `size`, or no number.
    """
    scaled = [value / size for value in values]
    if not all(-1 <= value <= 1 for value in scaled):
        raise ValueError(f"values from {min(values)} to {max(values)} are not from {-size} to {size}")
    mean = math.fsum(scaled) / len(scaled)
    low = _bound(scaled, mean, error / 2)
    high = -_bound([-value for value in scaled], -mean, error / 2)
    towards = scaled if mean > 0 else [-value for value in scaled]
    return MeanTest(low * size, high * size, _least_error(towards, abs(mean), error))


def evidence(values: Sequence[float], mean: float, target: float) -> float:
    """Return the wealth of the bet against a mean of at most `mean`, for values from -1 to 1; it ends at `target`.

    `mean`: above -1.
    """
    ratios = [(value + 1) / (mean + 1) - 1 for value in values]
    rows = len(ratios)
    orders = min(rows, max(1, min(ORDERS, STEPS // rows)))
    prior = 0.25 / (mean + 1) ** 2
    total = 0.0
    for order in range(orders):
        start = order * rows // orders
        wealth, seen, squares, left = 1.0, 1, prior, rows
        for ratio in [*ratios[start:], *ratios[:start]]:
            share = math.sqrt(2 * math.log(target / wealth) * seen / (left * squares))
            wealth *= 1 + (share if share < 1 else 1.0) * ratio
            if not 0 < wealth < target:
                break
            squares += ratio * ratio
            seen += 1
            left -= 1
        total += wealth
    return total / orders


def _rejects(values: Sequence[float], mean: float, error: float) -> bool:
    return evidence(values, mean, 2 / error) >= 1 / error


def _bound(values: Sequence[float], mean: float, error: float) -> float:
    """Return the highest mean that is rejected as too low at `error`; below `mean`, that of the values."""

    def rejects(claimed: float) -> bool:
        return _rejects(values, claimed, error)

    if mean <= SMALLEST:
        return -1.0
    if mean > 0:
        return _last_rejected(0.0, mean, rejects) if rejects(0.0) else _last_rejected(-1.0, 0.0, rejects)
    return _last_rejected(-1.0, mean, rejects)


def _least_error(values: Sequence[float], mean: float, error: float) -> float:
    """Return the least two-sided error at which the mean is found to be above 0; `mean`: that of the values."""

    def rejects(log_error: float) -> bool:
        return _rejects(values, 0.0, math.exp(log_error) / 2)

    if mean == 0:
        return 1.0
    if _rejects(values, 0.0, error / 2):
        return min(error, math.exp(_last_rejected(math.log(error), math.log(LEAST_ERROR), rejects)))
    return math.exp(_last_rejected(0.0, math.log(error), rejects))


def _last_rejected(rejected: float, kept: float, rejects: Callable[[float], bool]) -> float:
    """Return the number nearest to `kept` that is rejected, if all between it and `rejected` are."""
    for _ in range(BISECTIONS):
        middle = (rejected + kept) / 2
        if rejects(middle):
            rejected = middle
        else:
            kept = middle
    return rejected


def t_cdf(t: float, freedom: int) -> float:
    """Return P(T <= t) of Student's t for a whole number of degrees of freedom.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions (1964), 26.7.3 and 26.7.4.
    """
    angle = math.atan2(t, math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = term if freedom > 1 else 0.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= (k - 1) / k * cosine * cosine
        total += term
    inside = (angle + sine * total) * 2 / math.pi if odd else sine * total
    return 0.5 + inside / 2


def t_quantile(probability: float, freedom: int) -> float:
    """Return the t of Student's distribution with P(T <= t) = `probability`, from 0.5 to 1, to 1e-9 of its size."""
    return least(NormalDist().inv_cdf(probability), 1.0, lambda t: t_cdf(t, freedom) >= probability, 1e-9)


def least(low: float, high: float, suffices: Callable[[float], bool], share: float) -> float:
    """Return the least number above `low` that suffices, as all above it do; infinity if none does.

    `high`: above 0, the first one that is tried. `share`: the largest relative error.
    """
    while not suffices(high):
        low, high = max(low, high), 2 * high
        if math.isinf(high):
            return high
    while high - low > share * high:
        middle = (low + high) / 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high
