"""What a check foresees of a run: how noisy scores are, which gains its rows can show, and what it takes and costs."""

from collections.abc import Sequence
from typing import Any, Self

from pydantic import BaseModel

from evolverpc_common.display_text import counted
from gepa_client.analysis import power
from gepa_client.certificate.verdict import allowed_error
from gepa_client.journal.history import selection_name
from gepa_client.settings.run_settings import Evolve

GAINS = (0.05, 0.1)
"""Gains of the mean score, as shares of the range of scores, for which the rows needed are reported."""

ERROR = allowed_error(1)
"""Of the tests by which gains are shown: that of a run's first certificate."""

PROPOSALS = 20
"""Proposals of the run whose calls are reported."""

CENT = 0.01
"""The least amount that is printed as a figure."""


class NeededRows(BaseModel, frozen=True):
    """How many `rows`, each evaluated once, show a gain of the mean score; None: no number of them.

    `gain`: as a share of the range of scores.
    "Shows" is the test of a certificate, at its error of 4 %, that finds the gain in 80 % of runs.
    """

    gain: float
    rows: int | None


class NoiseReport(BaseModel, frozen=True):
    """What the scores of the seed on `rows` rows, each evaluated `repeats` times, show of a run.

    `deterministic`: whether every row had the same score and the same output each time; None if nothing was repeated.
    `row_noise`: the standard deviation of one row's score if it is evaluated again; `mean_noise`: of the mean over the
    validation rows; None if nothing was repeated. `mean`: of all scores. `training_only`: there are no validation rows,
    and the training rows stand in for them. `smallest_gain`: the smallest gain of the mean
    that the validation rows show, each evaluated once; `smallest_test_gain`: that the test rows show.
    `score_range`: the lowest and the highest score that there can be.
    """

    rows: int
    repeats: int
    mean: float
    deterministic: bool | None
    row_noise: float | None
    mean_noise: float | None
    between_rows: float
    validation_rows: int
    training_only: bool = False
    smallest_gain: float
    test_rows: int | None
    smallest_test_gain: float | None
    needed: list[NeededRows]
    score_range: tuple[float, float] = (0.0, 1.0)

    @classmethod
    def of(
        cls,
        scores: Sequence[Sequence[float]],
        *,
        identical: bool,
        validation_rows: int,
        test_rows: int | None,
        training_only: bool = False,
        score_range: tuple[float, float] = (0.0, 1.0),
    ) -> Self:
        """Return the report for the scores of the seed by row and repeat; at least two rows.

        `identical`: whether the outputs of each row were the same each time. `training_only`: as the member.
        `test_rows`: those that differ. `score_range`: the lowest and the highest score that there can be.
        """
        found = power.noise_of(scores)
        size = score_range[1] - score_range[0]
        test: dict[str, Any] = {
            "error": ERROR,
            "size": size,
            "exact": {score for row in scores for score in row} <= set(score_range),
        }
        repeated = found.repeats > 1
        return cls(
            rows=found.rows,
            repeats=found.repeats,
            mean=sum(sum(row) / len(row) for row in scores) / len(scores),
            deterministic=found.deterministic and identical if repeated else None,
            row_noise=found.within**0.5 if repeated else None,
            mean_noise=found.noise_of_mean(validation_rows, 1) if repeated else None,
            between_rows=found.between**0.5,
            validation_rows=validation_rows,
            training_only=training_only,
            smallest_gain=power.smallest_gain(found, validation_rows, **test),
            test_rows=test_rows,
            smallest_test_gain=power.smallest_gain(found, test_rows, **test) if test_rows else None,
            needed=[NeededRows(gain=gain, rows=power.rows_needed(found, gain * size, **test)) for gain in GAINS],
            score_range=score_range,
        )

    def about_noise(self, *, stated: bool) -> str:
        """Return how much the score of a row, and of all validation rows, changes if it is evaluated again.

        `stated`: the program, or the run, is stated to be deterministic.
        """
        if self.row_noise is None or self.mean_noise is None:
            return "noise not measured: each row was evaluated once"
        again = f"{counted(self.rows, 'row')} evaluated {self.repeats} times"
        if self.deterministic:
            looks = "" if stated else ", so the program looks deterministic (`deterministic` reuses results)"
            return f"none: {again} had the same scores and outputs{looks}"
        if not self.row_noise:
            return f"no noise in the scores of {again}, but the outputs differ"
        changes = f"a row's score changes by {self._points(self.row_noise)}"
        means = f"the mean of {self._selecting_rows} by {self._points(self.mean_noise)}"
        return f"evaluated again, {changes}, and {means} (standard deviations; {again})"

    @property
    def about_power(self) -> str:
        """Which gains the rows of the run can show."""
        text = f"with {self._selecting_rows}, {self._missed(self.smallest_gain)}"
        if self.smallest_test_gain is not None:
            text += f"; with {counted(self.test_rows or 0, 'test row')}, {self._missed(self.smallest_test_gain)}"
        return text

    @property
    def _selecting_rows(self) -> str:
        return counted(self.validation_rows, f"{selection_name(training_only=self.training_only)} row")

    def _missed(self, gain: float) -> str:
        """Return which gains are missed if `gain` is the smallest that is found.

        No score can rise by more than the seed's mean leaves of the range.
        """
        highest = self.score_range[1]
        if gain <= highest - self.mean or self.mean > highest:
            return f"gains under {self._points(gain)} may be missed"
        if self.mean == highest:
            return f"it is not known which gains may be missed: the seed scores {highest:.2f} on each of the rows tried"
        return f"even a gain from {self.mean:.2f}, the seed's mean over the rows tried, to {highest:.2f} may be missed"

    def _points(self, gain: float) -> str:
        lowest, highest = self.score_range
        return points(gain / (highest - lowest))

    @property
    def about_needs(self) -> str:
        """How many rows other gains need."""
        return "; ".join(f"a gain of {points(each.gain)} needs {_needs(each)}" for each in self.needed)


def proposal_calls(validation_rows: int, minibatch: int) -> tuple[int, int]:
    """Return the metric calls of `PROPOSALS` proposals and the seed: if none is accepted, and if all are."""
    rejected = validation_rows + PROPOSALS * 2 * minibatch
    return rejected, rejected + PROPOSALS * validation_rows


def points(gain: float) -> str:
    """Return a share of the range of scores in points, hundredths of it: `11 points`."""
    number = 100 * gain
    shown = f"{number:.1f}" if number < 9.95 and round(number, 1) % 1 else f"{number:,.0f}"
    return f"{shown} point{'' if shown == '1' else 's'}"


def _needs(needed: NeededRows) -> str:
    return "more rows than can be counted" if needed.rows is None else f"{needed.rows:,} rows"


class RunEstimate(BaseModel, frozen=True):
    """Seconds, an example's as measured here, the network included.

    `at_once`: over all servers that answer. `run_s`: what `budget` metric calls would take, from every slot busy to one
    minibatch at a time; None, as `budget` and `run_usd`, if another limit ends the run. `proposals_calls`: metric calls
    of the seed's evaluation and of `proposals` proposals, if none is accepted and if all are; `proposals_usd`: what
    these cost. `warm`: the calls that were measured are not the first ones, with which the program also starts.
    `again_s`: what an example took when its row was evaluated again, if the first calls were measured.
    """

    example_s: float
    slowest_s: float
    warm: bool = False
    again_s: float | None = None
    at_once: int
    budget: int | None
    run_s: tuple[float, float] | None
    example_usd: float | None = None
    run_usd: float | None = None
    proposals: int
    proposals_calls: tuple[int, int]
    proposals_usd: tuple[float, float] | None = None


def span(seconds: float) -> str:
    """Return `32 ms`, `3.2 s`, `5 min`, `2.5 h`."""
    if seconds < 0.0995:
        return f"{_two_digits(seconds * 1000)} ms"
    if seconds < 120:
        return f"{_two_digits(seconds)} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def about_usd(usd: float) -> str:
    """Return `about $0.25`, `less than $0.01`."""
    return f"about ${usd:.2f}" if usd >= CENT or usd == 0 else "less than $0.01"


def run_estimate(timing: RunEstimate, evolve: Evolve) -> str:
    """Return what an example takes, and what the budget takes and costs. `evolve`: what a run would change."""
    text = f"{span(timing.example_s)} per call of an example{' that is evaluated again' if timing.warm else ''} "
    text += f"(slowest {span(timing.slowest_s)}), "
    text += f"up to {timing.at_once} at once over all servers and processes"
    if timing.budget is None or timing.run_s is None:
        return text + (f", {_each(timing.example_usd)}" if timing.example_usd is not None else "")
    quick, slow = (span(seconds) for seconds in timing.run_s)
    uncounted = "reflection" if evolve == "prompts" else "reflection and changes of code"
    would_take = quick if quick == slow else f"{quick} to {slow}"
    if not timing.warm:
        would_take += " at the pace of these first calls, which include the program's start"
    if timing.again_s is not None:
        would_take += f" (evaluated again, {span(timing.again_s)} per call: they may be cached)"
    text += f"; {timing.budget:,} metric calls would take {would_take}, {uncounted} not counted"
    if timing.run_usd is not None and timing.example_usd is not None:
        text += f", and cost {about_usd(timing.run_usd)} ({_each(timing.example_usd)})"
    return text


def _each(usd: float) -> str:
    return f"${usd:.4f} each" if usd >= 0.0001 or usd == 0 else "less than $0.0001 each"


def _two_digits(number: float) -> str:
    """Return `0.25`, `3.2`, `32`, `110`: never an exponent."""
    return f"{number:.{2 if number < 0.995 else 1 if number < 9.95 else 0}f}"
