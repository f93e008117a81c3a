"""The chance that a search gains more than an amount in the budget that is left, by its record so far."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

LEAST_GAINS = 2
"""Gains of which the mean size is taken, at least; else the later half of them."""


@dataclass(frozen=True, slots=True)
class FurtherGain:
    """`chance`: that the best score rises by more than the amount. `expected`: further rises of any size.

    `mean`: the size of the later half of the rises, None without any.
    """

    chance: float
    expected: float
    mean: float | None


def further_gain(gains: Sequence[float], recent: int, left: float, amount: float) -> FurtherGain:
    """Return the chance that the best score rises by more than `amount` in what is left of a search.

    `gains`: by how much the best score rose, at each rise so far, in order. `recent`: how many of the rises were in the
    later half of the search. `left`: what is left, in units of that half.

    Further rises are a Poisson number, as frequent as in the later half with one more rise, by Laplace's rule of
    succession: rises become rarer as a search continues, so this is no less than their rate. The size of a rise is
    exponential, as that of an exceedance of a high threshold is in the limit, with the mean of the later half of the
    rises. Before the first rise, any rise counts as larger than `amount`.

    Sources: Laplace, Essai philosophique sur les probabilités (1814), for the rate; Pickands, Statistical inference
    using extreme order statistics, Annals of Statistics 3 (1975), for the sizes.
    """
    expected = (recent + 1) * left
    if not gains:
        return FurtherGain(-math.expm1(-expected), expected, None)
    later = gains[-max(LEAST_GAINS, (len(gains) + 1) // 2) :]
    mean = math.fsum(later) / len(later)
    return FurtherGain(_exceeds(expected, amount / mean), expected, mean)


def _exceeds(expected: float, amount: float) -> float:
    """Return the chance that the sum of a Poisson number of exponential sizes of mean 1 is above the amount."""
    most = round(expected + 10 * math.sqrt(expected) + 20)
    number, size, above, chance = math.exp(-expected), math.exp(-amount), 0.0, 0.0
    for count in range(1, most):
        number *= expected / count
        above += size
        size *= amount / count
        chance += number * above
    return min(chance, 1.0)
