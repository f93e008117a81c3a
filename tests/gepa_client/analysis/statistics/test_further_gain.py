"""The chance of a further gain, against simulation of what it assumes."""

import math
import random

import pytest

from gepa_client.analysis.statistics.further_gain import further_gain


@pytest.mark.parametrize(("recent", "left", "amount"), [(2, 0.5, 0.05), (0, 0.1, 0.02), (4, 1.0, 0.2)])
def test_the_chance_is_that_of_a_poisson_number_of_exponential_rises(recent: int, left: float, amount: float) -> None:
    rng, trials = random.Random(4), 20_000
    found = further_gain([0.2, 0.04, 0.02], recent, left, amount)

    def total() -> float:
        rises, at = 0.0, rng.expovariate((recent + 1) * left)
        while at < 1:
            rises += rng.expovariate(1 / 0.03)
            at += rng.expovariate((recent + 1) * left)
        return rises

    frequency = sum(total() > amount for _ in range(trials)) / trials
    assert found.mean == pytest.approx(0.03)
    assert found.chance == pytest.approx(frequency, abs=4 * math.sqrt(0.25 / trials))


def test_before_the_first_rise_any_rise_counts() -> None:
    assert further_gain([], 0, 0.05, 0.5).chance == pytest.approx(1 - math.exp(-0.05))


def test_the_chance_falls_with_the_amount_and_with_what_is_left() -> None:
    chances = [further_gain([0.1, 0.1], 1, left, amount).chance for left, amount in ((1, 0.1), (1, 0.3), (0.1, 0.3))]
    assert chances == sorted(chances, reverse=True)
    assert chances[2] < 0.05 < chances[0]
