"""What the best of many candidates really scores, after it was chosen by the scores that it is judged by."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from gepa_client.analysis.statistics import student_t

FOLDS = 10


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The best candidate's score. `raw`: its mean over the rows that it was chosen by, among `compared` candidates.

    `estimate`: without the luck of the choice. `low` to `high`: the 95 % interval of the true mean over such rows.
    """

    raw: float
    estimate: float
    low: float
    high: float
    compared: int


def shrink(scores: Sequence[Sequence[float]], best: int) -> Shrunk:
    """Estimate the true mean score of candidate `best`, given the scores by candidate and row.

    Cross-validated selection: the rows are split into ten folds; for each the candidate that is best on all other
    rows is scored on the rows of the fold. No row then takes part both in the choice and in the score.

    Source: Tibshirani and Tibshirani, A bias correction for the minimum error rate in cross-validation, Annals of
    Applied Statistics 3 (2009).

    Raises:
        ValueError: fewer than two rows, or candidates with unequal numbers of rows.
    """
    rows = len(scores[best])
    if rows < 2 or any(len(each) != rows for each in scores):
        raise ValueError("give each candidate's score on the same rows, at least 2 of them")
    totals = [math.fsum(each) for each in scores]
    raw = totals[best] / rows
    fresh: list[float] = []
    for fold in range(min(FOLDS, rows)):
        held = range(fold, rows, FOLDS)
        without = [total - math.fsum(each[row] for row in held) for total, each in zip(totals, scores, strict=True)]
        chosen = best if math.isclose(without[best], max(without)) else without.index(max(without))
        fresh += [scores[chosen][row] for row in held]
    estimate = min(fmean(fresh), raw)
    half = student_t.quantile(0.975, rows - 1) * stdev(fresh) / math.sqrt(rows)
    return Shrunk(raw=raw, estimate=estimate, low=estimate - half, high=estimate + half, compared=len(scores))
