import random
from statistics import fmean

import pytest

from gepa_client.analysis import noise_estimate as noise


def test_the_two_variances_are_those_that_the_scores_were_drawn_with():
    draw = random.Random(1)
    found = []
    for _ in range(300):
        rows = [draw.gauss(0.5, 0.3) for _ in range(40)]
        found.append(noise.estimate([[draw.gauss(row, 0.2) for _ in range(3)] for row in rows]))
    assert fmean(each.within for each in found) == pytest.approx(0.04, rel=0.03)
    assert fmean(each.between for each in found) == pytest.approx(0.09, rel=0.05)


def test_the_noise_of_a_mean_is_what_repeats_show():
    truth = noise.Noise(rows=40, repeats=2, within=0.04, between=0.09)
    assert truth.noise_of_mean(40, 4) == pytest.approx((0.01 / 40) ** 0.5)


def test_a_program_is_deterministic_if_every_repeat_of_each_row_has_the_same_score():
    assert noise.estimate([[0.1, 0.1], [0.7, 0.7]]).deterministic
    assert not noise.estimate([[0.1, 0.1], [0.7, 0.8]]).deterministic
    assert not noise.estimate([[0.1], [0.7]]).deterministic  # nothing was repeated


@pytest.mark.parametrize(("scores", "message"), [([[1.0]], "1 rows"), ([[1.0], []], "row 1 has no score")])
def test_scores_that_show_no_variance_are_refused(scores, message):
    with pytest.raises(ValueError, match=message):
        noise.estimate(scores)
