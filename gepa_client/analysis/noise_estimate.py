"""How much of the spread of scores is the program's own, and how much is between rows."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance


@dataclass(frozen=True, slots=True)
class Noise:
    """Variances of one candidate's scores.

    `within`: of one row's score if it is evaluated again. `between`: of the rows' true means. `repeats`: the fewest of
    a row. If no row was repeated, all variance counts as `between`, and `within` is 0.
    """

    rows: int
    repeats: int
    within: float
    between: float

    @property
    def deterministic(self) -> bool:
        """Whether each row had the same score whenever it was evaluated, and was evaluated at least twice."""
        return self.repeats > 1 and self.within == 0.0

    def noise_of_mean(self, rows: int, repeats: int) -> float:
        """Return the standard deviation of the mean over the same rows if all are evaluated again."""
        return math.sqrt(self.within / (rows * repeats))


def estimate(scores: Sequence[Sequence[float]]) -> Noise:
    """Return the variances that explain the scores of one candidate, by row and repeat.

    Analysis of variance with one random effect: `within` is pooled over the rows, `between` is what the variance of
    the rows' means has beyond it, at least 0.

    Source: Searle, Casella and McCulloch, Variance Components (1992), chapter 3.

    Raises:
        ValueError: fewer than two rows, or a row without a score.
    """
    if len(scores) < 2:
        raise ValueError(f"{len(scores)} rows show no variance between rows: give at least 2")
    if not all(scores):
        raise ValueError(f"row {next(at for at, row in enumerate(scores) if not row)} has no score")
    repeated = [row for row in scores if len(row) > 1]
    freedom = sum(len(row) - 1 for row in repeated)
    within = math.fsum(variance(row) * (len(row) - 1) for row in repeated) / freedom if freedom else 0.0
    of_means = variance([fmean(row) for row in scores])
    of_noise = within * fmean([1 / len(row) for row in scores])
    return Noise(rows=len(scores), repeats=min(map(len, scores)), within=within, between=max(of_means - of_noise, 0.0))
