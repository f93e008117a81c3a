"""The certificates of one run err together in at most 5 %, however often its test rows are opened."""

import random

from gepa_client.certificate.verdict import ERROR, allowed_error, judge

RUNS, OPENINGS = 300, 3


def test_p_values_of_candidates_like_the_seed_give_at_most_5_percent_of_runs_a_verdict() -> None:
    """Uniform p-values are the worst case: those of an exact test are never smaller."""
    drawn = random.Random(15)
    runs = 40_000
    wrong = sum(any(drawn.random() <= allowed_error(opening) for opening in (1, 2, 3, 4, 5)) for _ in range(runs))
    once = sum(any(drawn.random() <= ERROR / opening for opening in (1, 2, 3, 4, 5)) for _ in range(runs))
    assert 0.045 < wrong / runs < 0.05 + 3 * (0.05 * 0.95 / runs) ** 0.5
    assert once / runs > 0.09  # of a rule that divides by the openings so far


def test_runs_that_open_the_same_rows_again_and_again_err_in_at_most_5_percent() -> None:
    drawn = random.Random(16)
    wrong = 0
    for _ in range(RUNS):
        seed, *candidates = ([[float(drawn.random() < 0.5)] for _ in range(40)] for _ in range(OPENINGS + 1))
        wrong += any(judge(seed, each, opening=at)[0] != "no difference" for at, each in enumerate(candidates, 1))
    assert 0 < wrong / RUNS <= 0.05
