"""The certificates of one run err together in at most 5 %, however often its test rows are opened."""

import random

from gepa_client.certificate.verdict import allowed_error


def test_p_values_of_candidates_like_the_seed_give_at_most_5_percent_of_runs_a_verdict() -> None:
    """Uniform p-values are the worst case: those of an exact test are never smaller."""
    drawn = random.Random(15)
    runs = 40_000
    wrong = sum(any(drawn.random() <= allowed_error(opening) for opening in (1, 2, 3, 4, 5)) for _ in range(runs))
    assert 0.045 < wrong / runs < 0.05 + 3 * (0.05 * 0.95 / runs) ** 0.5
