"""The stoppers that use GEPA's state alone, so that a replay ends its search where the run did."""

from dataclasses import dataclass
from typing import Any, Protocol

from gepa.core.state import GEPAState
from gepa.utils import MaxCandidateProposalsStopper, NoImprovementStopper, ScoreThresholdStopper, StopperProtocol
from gepa.utils.stop_condition import MaxTrackedCandidatesStopper

from gepa_client.analysis.statistics.further_gain import further_gain
from gepa_client.settings.run_config import RunConfig

LEAST_IDLE = 100
"""Iterations in a row that evaluate nothing before a search ends."""

UNLIKELY = 0.05
"""The chance of a further gain below which a search ends."""

LEAST_ITERATIONS = 10
"""Iterations before which a search does not end for want of a likely gain."""

_STOPPERS: dict[str, Any] = {
    "patience": NoImprovementStopper,
    "target_score": ScoreThresholdStopper,
    "max_candidates": MaxTrackedCandidatesStopper,
    "max_iterations": MaxCandidateProposalsStopper,
}
"""GEPA's own stoppers, by the setting that each comes from."""


class Stop(StopperProtocol, Protocol):
    """Ends a search between two iterations. `reason`: why it did, None until it does."""

    reason: str | None


@dataclass
class StateStop:
    """One of GEPA's stoppers with the setting it comes from. `reason`: why it ended the search, None until it does."""

    setting: str
    value: float
    reason: str | None = None

    def __post_init__(self) -> None:
        self._stopper: StopperProtocol = _STOPPERS[self.setting](self.value)

    def __call__(self, gepa_state: GEPAState[Any, Any]) -> bool:
        """Return whether the search is over."""
        stops = self._stopper(gepa_state)
        if stops:
            self.reason = f"{self.setting} of {self.value:,g} is reached: {self._found(gepa_state)}"
        return stops

    def _found(self, state: GEPAState[Any, Any]) -> str:
        """Return what the stopper found in GEPA's state."""
        scores = state.program_full_scores_val_set
        best = f"{max(scores):.4g}" if scores else "none"
        match self.setting:
            case "patience":
                iterations = "iteration" if self.value == 1 else f"{self.value:,} iterations"
                return f"no better candidate in the last {iterations}; the best validation score is {best}"
            case "target_score":
                return f"the best validation score is {best}"
            case "max_candidates":
                return f"candidates found: {len(state.program_candidates):,}"
            case _:
                return f"iterations done: {state.i + 1:,}"


@dataclass
class PerfectStop:
    """Ends the search once a candidate has the perfect score on every validation row. `reason`: as in `StateStop`."""

    perfect: float
    reason: str | None = None

    def __call__(self, gepa_state: GEPAState[Any, Any]) -> bool:
        """Return whether the search is over."""
        for index, scores in enumerate(gepa_state.prog_candidate_val_subscores):
            if scores and all(score == self.perfect for score in scores.values()):
                which = "the seed" if index == 0 else f"candidate {index}"
                self.reason = (
                    f"perfect_score of {self.perfect:g} is reached: {which} has it on all {len(scores):,} validation "
                    "rows (--past-perfect continues)"
                )
                return True
        return False


@dataclass
class NothingNewStop:
    """Ends a search that reuses results once no iteration evaluates anything: such iterations use up no budget.

    `reason`: as in `StateStop`.
    """

    reason: str | None = None
    _evaluated: int = 0
    _since: int = 0

    def __call__(self, gepa_state: GEPAState[Any, Any]) -> bool:
        """Return whether the search is over."""
        if gepa_state.total_num_evals > self._evaluated:
            self._evaluated, self._since = gepa_state.total_num_evals, gepa_state.i
        idle = gepa_state.i - self._since
        if idle < LEAST_IDLE:
            return False
        self.reason = f"the last {idle:,} iterations evaluated nothing new: all their results were known"
        return True


@dataclass
class CertainStop:
    """Ends a search when it is unlikely that the best validation score rises by more than `gain`.

    `max_metric_calls`, `max_iterations`: limits of the run, at least one of them. `reason`: as in `StateStop`.
    """

    gain: float
    max_metric_calls: int | None
    max_iterations: int | None
    reason: str | None = None

    def __call__(self, gepa_state: GEPAState[Any, Any]) -> bool:
        """Return whether the search is over."""
        done, seed_rows = gepa_state.i + 1, len(gepa_state.prog_candidate_val_subscores[0])
        if done < LEAST_ITERATIONS:
            return False
        scores, found_at = gepa_state.program_full_scores_val_set, gepa_state.num_metric_calls_by_discovery
        calls = gepa_state.total_num_evals - seed_rows
        gains: list[float] = []
        best, recent = scores[0], 0
        for score, at in zip(scores[1:], found_at[1:], strict=True):
            if score > best:
                gains.append(score - best)
                best = score
                recent += at - seed_rows >= calls / 2
        left = self._left(done, calls / done, gepa_state.total_num_evals)
        further = further_gain(gains, recent, left / (done / 2), self.gain)
        if further.chance >= UNLIKELY:
            return False
        sizes = f", the later ones by {further.mean:.2g} on average" if further.mean is not None else ""
        self.reason = (
            f"stop_when_certain of {self.gain:g} is reached: a chance of {100 * further.chance:.2g} % that the best "
            f"validation score of {best:.4g} rises by more in {left:,.0f} further iterations; it rose {len(gains)} "
            f"times in {done:,}, {recent} of them in the later half{sizes}"
        )
        return True

    def _left(self, done: int, calls_each: float, calls: int) -> float:
        """Return the iterations that the limits leave."""
        left = [] if self.max_iterations is None else [float(self.max_iterations - done)]
        if self.max_metric_calls is not None:
            left.append((self.max_metric_calls - calls) / max(calls_each, 1.0))
        return max(0.0, min(left))


def stoppers(config: RunConfig) -> list[Stop]:
    """Return the stoppers that the settings ask for, in the order of the settings."""
    given = {name: getattr(config, name) for name in _STOPPERS}
    stops: list[Stop] = [StateStop(name, value) for name, value in given.items() if value is not None]
    if config.stop_when_certain is not None:
        stops.append(CertainStop(config.stop_when_certain, config.max_metric_calls, config.max_iterations))
    return stops
