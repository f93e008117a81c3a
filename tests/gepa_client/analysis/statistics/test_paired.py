import random
from typing import Any

import numpy as np
import pytest

from gepa_client.analysis.statistics import paired


def once(scores):
    return [[float(score)] for score in scores]


def test_scores_of_0_and_1_have_the_p_value_of_mcnemars_exact_test():
    draw = random.Random(3)
    for rows in (2, 9, 40, 300):
        first = [float(draw.random() < 0.5) for _ in range(rows)]
        second = [float(draw.random() < 0.65) for _ in range(rows)]
        found = paired.compare(once(first), once(second))
        wins = sum(b > a for a, b in zip(first, second, strict=True))
        losses = sum(b < a for a, b in zip(first, second, strict=True))
        expected = scipy_stats().binomtest(wins, wins + losses).pvalue if wins + losses else 1.0
        assert found.p_value == pytest.approx(expected, rel=1e-9)
        assert found.difference == pytest.approx((wins - losses) / rows)
        assert "McNemar" in found.method


def scipy_stats() -> Any:
    """Takes a second, which every process of the tests would take for an import of this module."""
    from scipy import stats

    return stats


@pytest.mark.parametrize("levels", [3, 7, 1000, None])
def test_other_scores_have_the_p_value_of_all_choices_of_signs(levels):
    draw = random.Random(4)
    score = (lambda: draw.randrange(levels) / levels) if levels else draw.random
    first, second = [score() for _ in range(12)], [score() + 0.2 for _ in range(12)]

    def mean_difference(a, b, axis):
        return np.mean(np.round(b - a, 9), axis=axis).round(9)

    expected = (
        scipy_stats()
        .permutation_test(
            (np.array(first), np.array(second)), mean_difference, permutation_type="samples", n_resamples=np.inf
        )
        .pvalue
    )
    assert paired.compare(once(first), once(second)).p_value == pytest.approx(
        expected, rel=1e-3 if levels is None else 1e-9
    )


def test_scores_that_are_not_fractions_have_the_p_value_of_a_monte_carlo_test():
    generator = np.random.default_rng(5)
    differences = generator.normal(0.1, 1, 300)
    signs = generator.integers(0, 2, (20_000, 300)) * 2 - 1
    extreme = np.abs(signs @ differences) >= abs(differences.sum())
    assert paired.sign_flip_p(differences.tolist()) == pytest.approx(extreme.mean(), abs=0.01)


def test_repeats_count_by_their_mean_and_decimal_sums_are_exact():
    first = [[0.1, 0.2, 0.3], [0.0, 1.0, 0.5], [0.4, 0.4, 0.4]]
    second = [[0.3, 0.3, 0.3], [0.6, 0.6, 0.6], [0.5, 0.5, 0.5]]
    found = paired.compare(first, second)
    assert found.difference == pytest.approx(0.1)
    assert found.p_value == 0.25  # all three differences are 0.1: 2 of 8 choices of signs
    assert "McNemar" in found.method


def test_no_difference_at_all_has_an_interval_that_narrows_with_the_rows():
    few, many = (paired.compare(once([1.0] * rows), once([1.0] * rows)) for rows in (20, 200))
    assert few.p_value == many.p_value == 1.0
    assert few.low == pytest.approx(-few.high)
    assert 0.09 < few.high < 0.11
    assert 0.009 < many.high < 0.011


def test_the_interval_is_students_t_once_the_added_rows_are_left_out():
    generator = np.random.default_rng(6)
    differences = generator.normal(0.05, 0.3, 400)
    low, high = paired.interval(differences.tolist(), 0.9)
    stats = scipy_stats()
    expected = stats.t.interval(0.9, 399, differences.mean(), stats.sem(differences))
    assert (low, high) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ([[1.0]], [[1.0]], "1 rows cannot be compared"),
        ([[1.0], [1.0]], [[1.0]], "2 and 1 rows"),
        ([[1.0], [1.0]], [[1.0], []], "row 1 has no score of the second candidate"),
    ],
)
def test_scores_that_cannot_be_compared_are_refused(first, second, message):
    with pytest.raises(ValueError, match=message):
        paired.compare(first, second)


def trinomial(wins, losses):
    return lambda draw, rows: draw.choices((1.0, -1.0, 0.0), (wins, losses, 1 - wins - losses), k=rows)


def graded(draw, rows):
    return [draw.betavariate(6, 4) - draw.betavariate(5, 4) for _ in range(rows)]


@pytest.mark.parametrize(
    ("differences", "truth", "rows"),
    [(trinomial(0.25, 0.15), 0.1, 60), (trinomial(0.1, 0.02), 0.08, 100), (graded, 0.6 - 5 / 9, 30)],
)
def test_the_95_percent_interval_covers_the_truth_in_94_to_96_percent_of_runs(differences, truth, rows):
    draw = random.Random(7)
    runs = 3000  # 0.4 % is one standard error
    intervals = (paired.interval(differences(draw, rows), 0.95) for _ in range(runs))
    covered = sum(low <= truth <= high for low, high in intervals)
    assert 0.94 <= covered / runs <= 0.96
