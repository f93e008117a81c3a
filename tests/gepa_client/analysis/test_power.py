import math
import random
from statistics import fmean

import pytest

from gepa_client.analysis import paired_comparison as paired
from gepa_client.analysis import power


def pair(draw, rows, *, gain, spread):
    """Return the scores of two candidates whose rows' chances correlate by `ALIKE`, but for rows lifted by the gain."""
    low, high = 0.5 - spread, 0.5 + spread
    first, second = [], []
    for _ in range(rows):
        one = draw.choice((low, high))
        other = one if draw.random() < power.ALIKE else draw.choice((low, high))
        other = high if draw.random() < gain / spread else other
        first.append([float(draw.random() < one)])
        second.append([float(draw.random() < other)])
    return first, second


@pytest.mark.parametrize(("rows", "spread"), [(60, 0.5), pytest.param(200, 0.3, marks=pytest.mark.long)])
def test_the_smallest_gain_is_shown_by_four_tests_in_five_or_a_few_more(rows, spread):
    draw = random.Random(2)
    about = power.Noise(rows, 2, within=0.25 - spread * spread, between=spread * spread)
    gain = power.smallest_gain(about, rows)
    shown, runs = 0, 250 if spread == 0.5 else 60
    for _ in range(runs):
        found = paired.compare(*pair(draw, rows, gain=gain, spread=spread))
        shown += found.p_value < 0.05 and found.difference > 0
    assert 0.72 <= shown / runs <= 0.98


def test_rows_needed_are_the_fewest_that_show_the_gain():
    about = power.Noise(40, 2, within=0.1, between=0.09)
    rows = power.rows_needed(about, 0.05)
    assert power.smallest_gain(about, rows) <= 0.05 < power.smallest_gain(about, rows - 1)


def test_rows_that_the_bet_needs_show_the_gain_as_often_as_stated():
    """Graded scores; the benchmark `certificate` has more of them."""
    about, draw, runs = power.Noise(40, 2, within=0.0, between=0.04), random.Random(3), 60
    rows = power.rows_needed(about, 0.1, exact=False)
    deviation = power.variance_of_difference(about, 0.1) ** 0.5
    tests = (
        paired.mean_test([max(-1.0, min(draw.gauss(0.1, deviation), 1.0)) for _ in range(rows)], 1.0, 0.05)
        for _ in range(runs)
    )
    assert 0.7 <= sum(test.low > 0 for test in tests) / runs <= 0.95


def test_five_discordant_rows_can_show_nothing_and_six_can():
    perfect = power.Noise(6, 2, within=0.0, between=0.0)
    assert power.smallest_gain(perfect, 6) < 1.0 < power.smallest_gain(perfect, 5)
    assert math.isinf(power.smallest_gain(perfect, 2))


def test_the_two_variances_are_those_that_the_scores_were_drawn_with():
    draw = random.Random(1)
    found = []
    for _ in range(300):
        rows = [draw.gauss(0.5, 0.3) for _ in range(40)]
        found.append(power.noise_of([[draw.gauss(row, 0.2) for _ in range(3)] for row in rows]))
    assert fmean(each.within for each in found) == pytest.approx(0.04, rel=0.03)
    assert fmean(each.between for each in found) == pytest.approx(0.09, rel=0.05)


@pytest.mark.parametrize(("scores", "message"), [([[1.0]], "1 rows"), ([[1.0], []], "row 1 has no score")])
def test_scores_that_show_no_variance_are_refused(scores, message):
    with pytest.raises(ValueError, match=message):
        power.noise_of(scores)
