import random
from statistics import fmean

import pytest

from gepa_client.analysis.statistics import shrinkage


def equals(draw, candidates, rows):
    return [[float(draw.random() < 0.5) for _ in range(rows)] for _ in range(candidates)]


def best_of(scores):
    return max(range(len(scores)), key=lambda candidate: sum(scores[candidate]))


def test_the_luck_of_the_choice_among_equal_candidates_is_taken_off():
    draw = random.Random(1)
    found = []
    for _ in range(200):
        scores = equals(draw, 20, 60)
        found.append(shrinkage.shrink(scores, best_of(scores)))
    assert fmean(each.raw for each in found) > 0.6
    assert fmean(each.estimate for each in found) == pytest.approx(0.5, abs=0.05)
    assert all(each.compared == 20 and each.low <= each.estimate <= each.high for each in found)


def test_a_candidate_that_is_far_better_keeps_its_score():
    draw = random.Random(2)
    scores = [*equals(draw, 5, 100), [float(draw.random() < 0.95) for _ in range(100)]]
    found = shrinkage.shrink(scores, 5)
    assert found.estimate == pytest.approx(found.raw)


def test_one_candidate_was_not_chosen():
    found = shrinkage.shrink([[0.0, 1.0, 1.0]], 0)
    assert found.raw == found.estimate == pytest.approx(2 / 3)


def test_candidates_with_unequal_rows_are_refused():
    with pytest.raises(ValueError, match="same rows"):
        shrinkage.shrink([[1.0, 0.0], [1.0]], 0)
