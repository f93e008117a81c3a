import math
import random

import pytest

from gepa_client.analysis import paired_comparison as paired


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
        tail = sum(math.comb(wins + losses, count) for count in range(min(wins, losses) + 1))
        expected = min(1.0, 2 * tail / 2 ** (wins + losses))
        assert found.p_value == pytest.approx(expected, rel=1e-9)
        assert found.difference == pytest.approx((wins - losses) / rows)
        assert "McNemar" in found.method


def test_scores_between_the_ends_of_their_range_are_no_matter_of_signs_alone():
    """Ten rows that gain a little may hide a rare large loss; ten that pass where they failed do not."""
    small, whole = once([0.98] * 10), once([0.0] * 10)
    assert paired.compare(small, once([1.0] * 10)).p_value > 0.5
    assert paired.compare(whole, once([1.0] * 10)).p_value == 2 / 2**10
    assert paired.compare(small, once([1.0] * 10), score_range=(0.98, 1.0)).p_value == 2 / 2**10


def test_repeats_count_by_their_mean():
    first, second = [[0.0, 1.0], [0.0, 0.5]] * 20, [[1.0, 1.0], [0.5, 0.5]] * 20
    means = paired.compare(once([0.5, 0.25] * 20), once([1.0, 0.5] * 20))
    assert paired.compare(first, second) == means
    assert means.difference == 0.375
    assert means.low > 0


def test_no_difference_at_all_has_an_interval_that_narrows_with_the_rows():
    few, many = (paired.compare(once([1.0] * rows), once([1.0] * rows)) for rows in (20, 200))
    assert few.p_value == many.p_value == 1.0
    assert few.low == pytest.approx(-few.high)
    assert 0.09 < few.high < 0.11
    assert 0.009 < many.high < 0.011


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ([[1.0]], [[1.0]], "1 rows cannot be compared"),
        ([[1.0], [1.0]], [[1.0]], "2 and 1 rows"),
        ([[1.0], [1.0]], [[1.0], []], "row 1 has no score of the second candidate"),
        ([[1.0], [1.0]], [[1.0], [1.5]], "a score of 1.5 is not from 0 to 1"),
        ([[1.0], [1.0]], [[1.0], [float("nan")]], "a score of nan is not from 0 to 1"),
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
def test_the_95_percent_interval_covers_the_truth_in_93_to_97_percent_of_runs(differences, truth, rows):
    draw = random.Random(7)
    runs = 1000  # 0.7 % is one standard error
    intervals = (paired.interval(differences(draw, rows), 0.95) for _ in range(runs))
    covered = sum(low <= truth <= high for low, high in intervals)
    assert 0.93 <= covered / runs <= 0.97


@pytest.mark.parametrize(
    ("freedom", "below", "above", "quantile"),
    [
        (1, 0.20871440016015272, 0.8524163823495667, 12.706204736174694),
        (2, 0.16162351590802015, 0.908248290463863, 4.302652729749462),
        (30, 0.10175047926905843, 0.9726874775185085, 2.0422724563012378),
        (301, 0.09729778739488226, 0.9768007389156675, 1.9678765312856952),
    ],
)
def test_probabilities_and_quantiles_are_those_of_scipy(freedom, below, above, quantile):
    assert paired.t_cdf(-1.3, freedom) == pytest.approx(below, abs=1e-12)
    assert paired.t_cdf(2.0, freedom) == pytest.approx(above, abs=1e-12)
    assert paired.t_quantile(0.975, freedom) == pytest.approx(quantile, rel=1e-8)


# --- the test of a bounded mean

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
    tests = (paired.mean_test([without_gain()[kind](draw) for _ in range(rows)], 1.0, ERROR) for _ in range(runs))
    found = sum(test.low > 0 for test in tests)
    limit = ERROR / 2 * runs
    assert found <= limit + 3 * limit**0.5


@pytest.mark.parametrize("gain", [0.1, pytest.param(-0.1, marks=pytest.mark.long)])
def test_a_difference_is_found_in_four_of_five_tests_and_the_interval_and_p_agree(gain):
    spread, rows = 0.3, 140
    draw, runs, shown = random.Random(5), 20, 0
    for _ in range(runs):
        values = [max(-1.0, min(draw.gauss(gain, spread), 1.0)) for _ in range(rows)]
        test = paired.mean_test(values, 1.0, 0.04)
        mean = sum(values) / rows
        assert -1 <= test.low < mean < test.high <= 1
        assert (test.p_value <= 0.04) == (not test.low <= 0 <= test.high)
        shown += (test.low if gain > 0 else -test.high) > 0
    assert 0.7 * runs <= shown


def test_a_gain_that_a_rare_loss_could_undo_needs_as_many_rows_as_would_show_the_loss():
    """A loss of 1 in one row of 51 undoes a gain of 0.02 in the others; 0.98^rows is the chance of none."""
    assert paired.mean_test([0.02] * 190, 1.0, 0.04).low < 0 < paired.mean_test([0.02] * 240, 1.0, 0.04).low


def test_scores_on_another_scale_have_the_same_test():
    values = [0.1, 0.3, -0.05, 0.2] * 20
    one, hundred = paired.mean_test(values, 1.0, 0.04), paired.mean_test([100 * value for value in values], 100.0, 0.04)
    assert (hundred.low, hundred.high) == pytest.approx((100 * one.low, 100 * one.high))
    assert hundred.p_value == pytest.approx(one.p_value)
