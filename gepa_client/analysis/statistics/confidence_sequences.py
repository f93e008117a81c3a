"""Evidence on the mean of a finite population that holds after every value drawn from it, so that one may always look.

A bet against the claim "the mean is at least m": values are drawn in random order without replacement, and before each
one a share of the wealth is put on its being less than the claim expects of those that are left. If the claim is true,
the wealth is a supermartingale and exceeds 1 / error with a probability of at most `error`, however often one looks
(Ville's inequality). The shares are fixed and the wealth is their mean, so there is nothing to choose. Source:
Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS B 86 (2024), section 5.

Only a highest value is needed: a value that is lower than any before makes the wealth larger, but never negative.
"""

import math
from collections.abc import Sequence

SHARES = (0.02, 0.05, 0.1, 0.2)
"""Of the wealth that each bet puts on a row: small ones find small differences, large ones large differences soon."""


def wealth(values: Sequence[float], population: int, mean: float, highest: float) -> float:
    """Return the largest wealth so far of the bet against a population mean of at least `mean`; at least 1.

    `values`: in the order they were drawn. `population`: how many there are in all. `highest`: no value exceeds it.
    It is infinite if the values left cannot bring the mean to `mean`.

    Raises:
        ValueError: a value is above `highest`, is no number, or there are more values than the population has.
    """
    if len(values) > population:
        raise ValueError(f"{len(values)} values of a population of {population}")
    bets = [1.0] * len(SHARES)
    left = population * (highest - mean)  # by how much the values yet to come may fall short of the highest, in all
    most = 1.0
    slack = 1e-9 * max(1.0, abs(left))  # sums of floats
    for drawn, value in enumerate(values):
        shortfall = highest - value
        if not 0 <= shortfall < math.inf:
            raise ValueError(f"value {value} is no number up to {highest}")
        expected = left / (population - drawn)
        if expected > slack:
            ratio = shortfall / expected
            bets = [bet * (1 - share + share * ratio) for bet, share in zip(bets, SHARES, strict=True)]
            most = max(most, sum(bets) / len(bets))
        left -= shortfall
        if left < -slack:
            return math.inf
    return most
