import math
import random
from statistics import fmean, stdev

import pytest

from gepa_client.analysis.statistics import paired_comparison as paired
from gepa_client.analysis.statistics import student_t


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


def test_the_interval_is_students_t_once_the_added_rows_are_left_out():
    draw = random.Random(6)
    differences = [draw.gauss(0.05, 0.3) for _ in range(400)]
    margin = student_t.quantile(0.95, 399) * stdev(differences) / 20
    middle = fmean(differences)
    assert paired.interval(differences, 0.9) == pytest.approx((middle - margin, middle + margin), abs=1e-3)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ([[1.0]], [[1.0]], "1 rows cannot be compared"),
        ([[1.0], [1.0]], [[1.0]], "2 and 1 rows"),
        ([[1.0], [1.0]], [[1.0], []], "row 1 has no score of the second candidate"),
        ([[1.0], [1.0]], [[1.0], [1.5]], "a score of 1.5 is not from 0 to 1"),
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
