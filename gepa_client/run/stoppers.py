"""The stoppers that use GEPA's state alone, so that a replay ends its search where the run did."""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import Any, Protocol

from gepa.core.state import GEPAState
from gepa.utils import MaxCandidateProposalsStopper, NoImprovementStopper, ScoreThresholdStopper, StopperProtocol

from gepa_client.settings.run_config import RunConfig
from gepa_client.steering.candidate_pool import PoolWithout
from gepa_client.steering.steering import Steering

LEAST_IDLE = 100
"""Iterations in a row that evaluate nothing before a search ends."""

_STOPPERS: dict[str, Any] = {
    "patience": NoImprovementStopper,
    "target_score": ScoreThresholdStopper,
    "max_iterations": MaxCandidateProposalsStopper,
}
"""GEPA's own stoppers, by the setting that each comes from."""


class Stop(StopperProtocol, Protocol):
    """Ends a search between two iterations. `reason`: why it did, None until it does."""

    reason: str | None


@dataclass
class StateStop:
    """One of GEPA's stoppers with the setting it comes from. `reason`: why it ended the search, None until it does.

    `dropped`: candidates whose score is no target score any more; patience and other stoppers count them.
    """

    setting: str
    value: float
    dropped: Set[int] = frozenset()
    reason: str | None = None

    def __post_init__(self) -> None:
        self._stopper: StopperProtocol = _STOPPERS[self.setting](self.value)

    def __call__(self, gepa_state: GEPAState[Any, Any]) -> bool:
        """Return whether the search is over."""
        pool: Any = gepa_state
        if self.dropped and self.setting == "target_score":
            pool = PoolWithout(gepa_state, self.dropped)
        stops = self._stopper(pool)
        if stops:
            self.reason = f"{self.setting} of {self.value:,g} is reached: {self._found(pool)}"
        return stops

    def _found(self, state: GEPAState[Any, Any]) -> str:
        """Return what the stopper found in GEPA's state."""
        scores = state.program_full_scores_val_set
        best = f"{max(scores):.4g}" if scores else "none"
        match self.setting:
            case "patience":
                iterations = "iteration" if self.value == 1 else f"{self.value:,} iterations"
                return f"no better candidate in the last {iterations}; the best score is {best}"
            case "target_score":
                return f"the best score is {best}"
            case _:
                return f"iterations done: {state.i + 1:,}"


@dataclass
class PerfectStop:
    """Ends the search once a candidate that is not `dropped` has the perfect score on every row that selects them.

    `selection`: these rows' name. `sampled`: whether they are a sample. `reason`: as in `StateStop`.
    """

    perfect: float
    dropped: Set[int] = frozenset()
    selection: str = "validation"
    sampled: bool = False
    reason: str | None = None

    def __call__(self, gepa_state: GEPAState[Any, Any]) -> bool:
        """Return whether the search is over."""
        for index, scores in enumerate(gepa_state.prog_candidate_val_subscores):
            if scores and index not in self.dropped and all(score == self.perfect for score in scores.values()):
                which = "the seed" if index == 0 else f"candidate {index}"
                more = "; a new run with `validation` set to race:N searches on more rows" if self.sampled else ""
                self.reason = (
                    f"perfect_score of {self.perfect:g} is reached: {which} has it on all {len(scores):,} "
                    f"{'sampled ' if self.sampled else ''}{self.selection} rows (`past_perfect` continues{more})"
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
class BudgetStop:
    """Ends a search when its metric calls are used up. `reserved`: those that it leaves to compare the best candidates.

    `max_metric_calls`: of the search, None for any number. `recorded`: whether the record has further entries; if calls
    are reserved, the search then continues, since it was recorded with another limit. `last_requests`: called before it
    ends the search, as users may raise the limit until then. `reason`: as in `StateStop`.
    """

    max_metric_calls: int | None
    reserved: int = 0
    recorded: Callable[[], bool] = lambda: False
    last_requests: Callable[[GEPAState[Any, Any]], None] = lambda _state: None
    reason: str | None = None

    def __call__(self, gepa_state: GEPAState[Any, Any]) -> bool:
        """Return whether the search is over."""
        if not self._used_up(gepa_state) or (self.reserved and self.recorded()):
            return False
        self.last_requests(gepa_state)
        if not self._used_up(gepa_state):
            return False
        self.reason = f"max_metric_calls of {(self.max_metric_calls or 0) + self.reserved:,} is reached"
        self.reason += f", {self.reserved:,} of them kept to compare the best candidates" if self.reserved else ""
        return True

    def _used_up(self, state: GEPAState[Any, Any]) -> bool:
        return self.max_metric_calls is not None and state.total_num_evals >= self.max_metric_calls


@dataclass
class SteeredStops:
    """The stoppers of a search, in their order, once the requests that users made of it are in force."""

    steering: Steering
    stops: Sequence[Stop]

    def __call__(self, gepa_state: GEPAState[Any, Any]) -> bool:
        """Return whether the search is over."""
        self.steering.advance(gepa_state)
        return any(stop(gepa_state) for stop in self.stops)

    @property
    def max_metric_calls(self) -> int | None:
        """The limit of the search, for GEPA's callbacks."""
        return next(stop.max_metric_calls for stop in self.stops if isinstance(stop, BudgetStop))


def stoppers(config: RunConfig, dropped: Set[int] = frozenset()) -> list[Stop]:
    """Return the stoppers that the settings ask for, in the order of the settings; `dropped`: as in `StateStop`."""
    given = {name: getattr(config, name) for name in _STOPPERS}
    return [StateStop(name, value, dropped) for name, value in given.items() if value is not None]
