import itertools

import pytest

from gepa_client.selection.race_rule import wealth

POPULATIONS = [
    (0.0, 0.0, 0.0, 1.0, -1.0, 0.0),
    (1.0, -1.0, 1.0, -1.0, 1.0, -1.0),
    (0.3, -0.9, 0.5, 0.5, -0.2, -0.2),
    (1.0, 1.0, 1.0, 1.0, 1.0, -5.0),
    (0.2, -0.04, -0.04, -0.04, -0.04, -0.04),
]
"""Of mean 0, no value above 1."""


@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize("error", [0.05, 0.5, 0.8])
def test_of_all_orders_at_most_the_error_ever_reach_the_evidence_against_a_true_claim(
    population: tuple[float, ...], error: float
) -> None:
    orders = list(itertools.permutations(population))
    wrong = sum(wealth(order, len(order), 1.0) >= 1 / error for order in orders)
    assert wrong <= error * len(orders)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6])
def test_the_unit_of_the_values_does_not_matter(scale: float) -> None:
    values = [0.2, -0.7, 0.0, -0.1, 0.4, -0.6]
    scaled = [value * scale for value in values]
    assert wealth(scaled, 20, scale) == pytest.approx(wealth(values, 20, 1.0))
