import random
from statistics import fmean

import numpy as np
import pytest

from gepa_client.analysis import best_score_estimate as shrinkage


def drawn(draw, *, candidates, rows, spread):
    """Scores of 0 and 1 of candidates whose true means differ by `spread`, on rows of different difficulty."""
    truths = [0.4 + spread * draw.random() for _ in range(candidates)]
    levels = [draw.uniform(-0.3, 0.3) for _ in range(rows)]
    return truths, [[float(draw.random() < truth + level) for level in levels] for truth in truths]


def best_of(scores):
    return max(range(len(scores)), key=lambda candidate: sum(scores[candidate]))


@pytest.mark.parametrize("spread", [0.1, *(pytest.param(spread, marks=pytest.mark.long) for spread in (0.0, 0.2))])
def test_at_most_a_third_of_the_luck_of_the_choice_remains_and_the_interval_covers_the_truth(spread):
    draw = random.Random(1)
    raw, left, covered = [], [], []
    for _ in range(300):
        truths, scores = drawn(draw, candidates=20, rows=60, spread=spread)
        best = best_of(scores)
        found = shrinkage.shrink(scores, best)
        raw.append(found.raw - truths[best])
        left.append(found.estimate - truths[best])
        covered.append(found.low <= truths[best] <= found.high)
        assert found.compared == 20
    assert fmean(raw) > 0.04
    assert abs(fmean(left)) <= fmean(raw) / 3
    assert 0.91 <= fmean(covered) <= 0.99


def test_the_share_that_is_kept_is_that_of_an_analysis_of_variance_by_rows_and_candidates():
    scores = np.random.default_rng(2).random((6, 40)) + np.arange(6)[:, None] * 0.05
    means, rows = scores.mean(1), scores.mean(0)
    left = scores - means[:, None] - rows + scores.mean()
    f = (40 * means.var(ddof=1)) / ((left**2).sum() / (5 * 39))
    found = shrinkage.shrink(scores.tolist(), 5)
    assert found.estimate == pytest.approx(means.mean() + (1 - 1 / f) * (means[5] - means.mean()))
