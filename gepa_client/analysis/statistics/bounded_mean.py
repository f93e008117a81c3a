"""Whether the mean of bounded values is above or below a given one: a test that is valid for every distribution.

A bet against the claim "the mean is at most m": before each value, a share of the wealth is put on its being more than
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

ORDERS, STEPS = 8, 10_000
"""Orders of few values, and the bets of a test that more values have in fewer orders, so that none takes long."""

BISECTIONS = 20

LEAST_ERROR = 1e-12
"""Below which no error is looked for."""

SMALLEST = -1 + 1e-6
"""A mean up to which no lower one is looked for."""


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
