"""The verdict on the scores of a run's test rows, and the probability of error that it allows."""

from collections.abc import Sequence
from typing import Literal

from gepa_client.analysis.paired_comparison import PairedComparison, compare

ERROR = 0.05
"""The probability that any certificate of a run states "improved" of one that is no better; "worse" likewise."""

Verdict = Literal["improved", "no difference", "worse"]


def allowed_error(opening: int) -> float:
    """Return the part of `ERROR` that the n-th opening of the test rows may spend, from 1: 4 %, 0.8 %, 0.16 %, ...

    Each spends four fifths of what is left, the most of it the first, as most runs open their test rows once. The sum
    over any number of openings stays below `ERROR`, and so does the error of all of them (Bonferroni's inequality,
    which holds for unequal parts and dependent tests).
    """
    return float(ERROR * 4 / 5**opening)


def judge(
    seed: Sequence[Sequence[float]],
    best: Sequence[Sequence[float]],
    score_range: tuple[float, float] = (0.0, 1.0),
    opening: int = 1,
) -> tuple[Verdict, PairedComparison]:
    """Return the verdict on the scores by unit and repeat, and the comparison that it follows from.

    `score_range`, and the order of the units: as of `compare`. A difference needs both p at most the allowed error, and
    no 0 in the interval at 1 less that error: McNemar's p is exact, the interval beside it is not, and a certificate
    must not state "improved" beside an interval with 0 in it.

    Raises:
        ValueError: as `compare`.
    """
    error = allowed_error(opening)
    found = compare(seed, best, score_range=score_range, error=error)
    if found.p_value > error or found.low <= 0 <= found.high:
        return "no difference", found
    return "improved" if found.difference > 0 else "worse", found
