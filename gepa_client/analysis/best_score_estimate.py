"""What the best of many candidates really scores, after it was chosen by the scores that it is judged by."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from gepa_client.analysis.paired_comparison import t_quantile


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The best candidate's score. `raw`: its mean over the rows that it was chosen by, among `compared` candidates.

    `estimate`: its true mean over such rows, without the luck of the choice. `low` to `high`: the 95 % interval.
    """

    raw: float
    estimate: float
    low: float
    high: float
    compared: int


def shrink(scores: Sequence[Sequence[float]], best: int) -> Shrunk:
    """Estimate the true mean score of candidate `best`, given the scores by candidate and row.

    Empirical Bayes: a score is the sum of its row's difficulty, its candidate's quality and chance. Chance is what is
    left of the scores without the means of rows and candidates. What the candidates' means vary beyond chance is
    quality, and the best one's lead over their mean shrinks by the share that is chance. Rows count alike for all
    candidates, so that their correlation does no harm. An estimate by Bayes' rule needs no correction for the choice.

    What all candidates share, that these rows are easier or harder than others, no estimate can take off: the interval
    holds it. A single candidate was not chosen, and keeps its score.

    Sources: Efron and Morris, Data analysis using Stein's estimator and its generalizations, Journal of the American
    Statistical Association 70 (1975); Efron, Tweedie's formula and selection bias, the same 106 (2011).

    Raises:
        ValueError: fewer than two rows, or candidates with unequal numbers of rows.
    """
    compared, rows = len(scores), len(scores[best])
    if rows < 2 or any(len(each) != rows for each in scores):
        raise ValueError("give each candidate's score on the same rows, at least 2 of them")
    means = [fmean(each) for each in scores]
    of_rows = [fmean(column) for column in zip(*scores, strict=True)]
    overall, raw = fmean(means), means[best]
    of_common = variance(of_rows) / rows
    if compared > 1:
        left = math.fsum(
            (score - mean - of_row + overall) ** 2
            for mean, each in zip(means, scores, strict=True)
            for score, of_row in zip(each, of_rows, strict=True)
        )
        of_chance = left / ((compared - 1) * (rows - 1)) / rows
        of_means = max(variance(means), of_chance)
        kept = 1 - of_chance / of_means if of_means else 0.0
        of_best = kept * of_chance + (1 - kept) ** 2 * of_means / compared
    else:
        kept, of_best = 1.0, 0.0
    estimate = overall + kept * (raw - overall)
    half = t_quantile(0.975, rows - 1) * math.sqrt(of_common + of_best)
    return Shrunk(raw=raw, estimate=estimate, low=estimate - half, high=estimate + half, compared=compared)
