"""What ends a search by GEPA's state alone, so that a replay ends its search where the run did."""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Any

from gepa.core.state import GEPAState
from gepa.utils import MaxCandidateProposalsStopper, NoImprovementStopper, ScoreThresholdStopper, StopperProtocol

from gepa_client.settings.run_config import RunConfig
from gepa_client.steering.steering import PoolWithout, Steering

State = GEPAState[Any, Any]

Stop = Callable[[State], str | None]
"""Returns why a search ends between two iterations; None if it continues."""

LEAST_IDLE = 100
"""Iterations in a row that evaluate nothing before a search ends."""


def _best(state: State) -> str:
    scores = state.program_full_scores_val_set
    return f"the best score is {max(scores):.4g}" if scores else "the best score is none"


def _no_better(state: State, value: int) -> str:
    iterations = "iteration" if value == 1 else f"{value:,} iterations"
    return f"no better candidate in the last {iterations}; {_best(state)}"


_STOPPERS: dict[str, tuple[Any, Callable[[State, Any], str]]] = {
    "patience": (NoImprovementStopper, _no_better),
    "target_score": (ScoreThresholdStopper, lambda state, _: _best(state)),
    "max_iterations": (MaxCandidateProposalsStopper, lambda state, _: f"iterations done: {state.i + 1:,}"),
}
"""GEPA's own stoppers and what each found in GEPA's state, by the setting that gives its value."""


def stoppers(config: RunConfig, dropped: Set[int] = frozenset()) -> list[Stop]:
    """Return GEPA's own stoppers that the settings ask for, in the order of the settings.

    `dropped`: candidates whose score is no target score any more; patience and other stoppers count them.
    """
    given = {name: getattr(config, name) for name in _STOPPERS}
    return [
        partial(_reached, name, value, _STOPPERS[name][0](value), dropped)
        for name, value in given.items()
        if value is not None
    ]


def _reached(setting: str, value: float, stopper: StopperProtocol, dropped: Set[int], state: State) -> str | None:
    pool: Any = PoolWithout(state, dropped) if dropped and setting == "target_score" else state
    return f"{setting} of {value:,g} is reached: {_STOPPERS[setting][1](pool, value)}" if stopper(pool) else None


def perfect_stop(perfect: float, dropped: Set[int], selection: str, *, sampled: bool) -> Stop:
    """Return what ends the search once a candidate that is not `dropped` is perfect on every row that selects them.

    `perfect`: the perfect score. `selection`: these rows' name. `sampled`: whether they are a sample.
    """

    def stop(state: State) -> str | None:
        for index, scores in enumerate(state.prog_candidate_val_subscores):
            if scores and index not in dropped and all(score == perfect for score in scores.values()):
                which = "the seed" if index == 0 else f"candidate {index}"
                more = "; a new run searches on more rows: set `validation` to race:N" if sampled else ""
                return (
                    f"perfect_score of {perfect:g} is reached: {which} has it on all {len(scores):,} "
                    f"{'sampled ' if sampled else ''}{selection} rows (`past_perfect` continues{more})"
                )
        return None

    return stop


@dataclass
class NothingNewStop:
    """Ends a search that reuses results once no iteration evaluates anything: such iterations use up no budget."""

    _evaluated: int = 0
    _since: int = 0

    def __call__(self, state: State) -> str | None:
        """Return why the search is over."""
        if state.total_num_evals > self._evaluated:
            self._evaluated, self._since = state.total_num_evals, state.i
        idle = state.i - self._since
        return (
            None
            if idle < LEAST_IDLE
            else f"the last {idle:,} iterations evaluated nothing new: all their results were known"
        )


@dataclass
class BudgetStop:
    """Ends a search when its metric calls are used up. `reserved`: those that it leaves to compare the best candidates.

    `max_metric_calls`: of the search, None for any number. `recorded`: whether the record has further entries; if calls
    are reserved, the search then continues, since it was recorded with another limit.
    """

    max_metric_calls: int | None
    reserved: int
    recorded: Callable[[], bool]

    def __call__(self, state: State) -> str | None:
        """Return why the search is over."""
        used_up = self.max_metric_calls is not None and state.total_num_evals >= self.max_metric_calls
        if not used_up or (self.reserved and self.recorded()):
            return None
        kept = f", {self.reserved:,} of them kept to compare the best candidates" if self.reserved else ""
        return f"max_metric_calls of {(self.max_metric_calls or 0) + self.reserved:,} is reached{kept}"


@dataclass
class SteeredStops:
    """What ends a search, in this order, once the requests that users made of it are in force.

    The budget comes last, as users may raise it until then. `reason`: why the search ended, None until it does.
    """

    steering: Steering
    stops: Sequence[Stop]
    budget: BudgetStop
    reason: str | None = None

    def __call__(self, gepa_state: State) -> bool:
        """Return whether the search is over. Raises `Interrupted` in a replay whose run was stopped here by a limit."""
        self.steering.advance(gepa_state)
        if (recorded := self.steering.journal.recorded_stop()) is not None:
            raise recorded
        self.reason = next(filter(None, (stop(gepa_state) for stop in self.stops)), None)
        if self.reason is None and self.budget(gepa_state) is not None:
            self.steering.advance(gepa_state)
            self.reason = self.budget(gepa_state)
        return self.reason is not None

    @property
    def max_metric_calls(self) -> int | None:
        """The limit of the search, for GEPA's callbacks."""
        return self.budget.max_metric_calls
