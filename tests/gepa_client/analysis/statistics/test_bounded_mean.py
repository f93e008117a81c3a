"""The test of a bounded mean keeps its error for every distribution, and its interval and p-value agree with it."""

import random

import pytest

from gepa_client.analysis.statistics.bounded_mean import mean_test

ERROR = 0.1


def without_gain():
    """Distributions from -1 to 1 of mean 0 or below, by what is hard about them."""
    return {
        "rare large losses": lambda draw: -1.0 if draw.random() < 0.03 else 0.02,
        "rare losses": lambda draw: -1.0 if draw.random() < 1 / 11 else 0.1,
        "two-point": lambda draw: draw.choice((0.25, 0.25, -0.5)),
        "skewed": lambda draw: 0.1 - draw.betavariate(0.3, 2.7),
        "heavy ties": lambda draw: draw.choice((-0.5, -0.25, 0.25, 0.5)) if draw.random() < 0.2 else 0.0,
        "whole": lambda draw: draw.choice((-1.0, 1.0)),
    }


@pytest.mark.parametrize(
    ("rows", "runs"),
    [(10, 50), *(pytest.param(*each, marks=pytest.mark.long) for each in ((10, 150), (40, 37), (150, 10)))],
)
@pytest.mark.parametrize("kind", without_gain())
def test_at_most_half_of_the_error_finds_a_gain_that_does_not_exist(kind, rows, runs):
    draw = random.Random(rows)
    found = sum(mean_test([without_gain()[kind](draw) for _ in range(rows)], 1.0, ERROR).low > 0 for _ in range(runs))
    limit = ERROR / 2 * runs
    assert found <= limit + 3 * limit**0.5


@pytest.mark.parametrize("gain", [0.1, pytest.param(-0.1, marks=pytest.mark.long)])
def test_a_difference_is_found_in_four_of_five_tests_and_the_interval_and_p_agree(gain):
    spread, rows = 0.3, 140
    draw, runs, shown = random.Random(5), 20, 0
    for _ in range(runs):
        values = [max(-1.0, min(draw.gauss(gain, spread), 1.0)) for _ in range(rows)]
        test = mean_test(values, 1.0, 0.04)
        mean = sum(values) / rows
        assert -1 <= test.low < mean < test.high <= 1
        assert (test.p_value <= 0.04) == (not test.low <= 0 <= test.high)
        shown += (test.low if gain > 0 else -test.high) > 0
    assert 0.7 * runs <= shown


def test_a_gain_that_a_rare_loss_could_undo_needs_as_many_rows_as_would_show_the_loss():
    """A loss of 1 in one row of 51 undoes a gain of 0.02 in the others; 0.98^rows is the chance of none."""
    assert mean_test([0.02] * 190, 1.0, 0.04).low < 0 < mean_test([0.02] * 240, 1.0, 0.04).low


def test_scores_on_another_scale_have_the_same_test():
    values = [0.1, 0.3, -0.05, 0.2] * 20
    one, hundred = mean_test(values, 1.0, 0.04), mean_test([100 * value for value in values], 100.0, 0.04)
    assert (hundred.low, hundred.high) == pytest.approx((100 * one.low, 100 * one.high))
    assert hundred.p_value == pytest.approx(one.p_value)


@pytest.mark.parametrize("value", [1.5, -1.5, float("nan")])
def test_values_beyond_their_bounds_are_refused(value):
    with pytest.raises(ValueError, match=r"are not from -1\.0 to 1\.0"):
        mean_test([0.0, value], 1.0, 0.04)
