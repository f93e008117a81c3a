"""What ends or pauses a run.

A search ends by GEPA's state alone, so that a replay ends its search where the run did. Money, time and failures end or
pause a run too; a replay checks none of them.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from gepa.core.state import GEPAState
from gepa.utils import MaxCandidateProposalsStopper, NoImprovementStopper, ScoreThresholdStopper, StopperProtocol

from gepa_client.errors import Interrupted, plain_error
from gepa_client.gepa.adapter import RemoteAdapter
from gepa_client.gepa.batch_evaluator import ExampleDone
from gepa_client.journal.journal import Journal
from gepa_client.run.gateway_record import GatewayRecord
from gepa_client.run.run_counters import RunCounters
from gepa_client.settings.run_config import RunConfig
from gepa_client.settings.run_settings import Evolve
from gepa_client.steering.steering import PoolWithout, Steering
from gepa_client.transport.event_loop import CancelToken

State = GEPAState[Any, Any]

Stop = Callable[[State], str | None]
"""Returns why a search ends between two iterations; None if it continues. It may be a callback of GEPA too."""

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
                    f"{'sampled ' if sampled else ''}{selection} rows (set `past_perfect` to continue{more})"
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

    The budget comes last, as users may raise it until then. `begun`: gets GEPA's state, which there is once the seed is
    scored. `reason`: why the search ended, None until it does.
    """

    steering: Steering
    stops: Sequence[Stop]
    budget: BudgetStop
    begun: Callable[[State], None]
    reason: str | None = None

    def __call__(self, gepa_state: State) -> bool:
        """Return whether the search is over. Raises `Interrupted` in a replay whose run was stopped here by a limit."""
        self.begun(gepa_state)
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


FAILURE_WINDOW = 50
"""The number of latest examples that `failure_stop` considers."""

FAILURE_SHARE = 0.5
"""The share of them that may fail by default."""

QUIET_S = 5.0
"""Seconds without the end of a model call, after which the calls left are held."""

LONGEST_WAIT_S = 60.0
"""Seconds after which calls are abandoned although some keep ending."""

POLL_S = 0.2


@dataclass
class BetweenExamples:
    """Stops a run as soon as its money or its time is spent: examples in flight end, none starts.

    It checks once the replay has ended, however much was spent before. `on_spent`: called when the money is spent, as
    examples in flight may wait for more of it.
    """

    config: RunConfig
    journal: Journal
    counters: RunCounters
    on_spent: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._capped: str | None = None
        self._live = self._watching = False
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        self.journal.on_first_write(self._begin)
        return self

    def capped(self, reason: str) -> None:
        """Take the gateway's report that the money is spent; safe to call from any thread."""
        self._capped = reason
        if self._live:
            self._check_spending()

    def set_limits(self, config: RunConfig) -> None:
        """Apply other limits from now on."""
        self.config = config
        if self._live:
            self._apply()

    def _begin(self) -> None:
        self._live = True
        self._apply()

    def _apply(self) -> None:
        if self.config.max_cost_usd is not None and not self._watching:
            self._watching = True
            self.journal.spending.watch(self._check_spending)
        self._check_spending()
        if self._timer is not None:
            self._timer.cancel()
        if (limit_s := self.config.max_seconds) is not None:
            reason = Interrupted("completed", f"max_seconds of {limit_s:g} is reached")
            left = limit_s - self.counters.active_seconds
            if left <= 0:
                self.journal.cancel_token.cancel(reason)
                return
            self._timer = threading.Timer(left, self.journal.cancel_token.cancel, [reason])
            self._timer.daemon = True
            self._timer.start()

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _check_spending(self) -> None:
        spent, limit, reason = self.journal.spending.cost_usd, self.config.max_cost_usd, self._capped
        if limit is not None and spent >= limit:
            reason = f"max_cost_usd of ${limit:g} is reached: ${spent:.4f} spent"
        if reason is not None:
            self.journal.cancel_token.cancel(Interrupted("completed", reason))
            self.on_spent()


class FailureStop:
    """Pauses a run whose program fails on more than a share of the last examples, with the first of those failures.

    `share`: None for the default, which depends on what evolves, as a code mutation may fix the program.
    """

    def __init__(self, share: float | None, cancel_token: CancelToken) -> None:
        self._share = FAILURE_SHARE if share is None else share
        self._is_given = share is not None
        self._cancel_token = cancel_token
        self._last: deque[dict[str, Any] | None] = deque(maxlen=FAILURE_WINDOW)

    def begin(self, evolve: Evolve) -> None:
        """Set what evolves, before the first example."""
        if evolve != "prompts" and not self._is_given:
            self._share = 1.0

    def done(self, example: ExampleDone) -> None:
        """Count the result of an example."""
        failed = example.status in ("program_error", "timeout")
        failure = {"id": example.id, "status": example.status, **(example.error or {})}
        self._last.append(failure if failed else None)
        failures = [failure for failure in self._last if failure is not None]
        if len(self._last) == FAILURE_WINDOW and len(failures) > self._share * FAILURE_WINDOW:
            self._cancel_token.cancel(
                Interrupted(
                    "paused",
                    f"{len(failures)} of the last {FAILURE_WINDOW} examples failed in the program, more than "
                    f"`failure_stop` {self._share:g} allows (1: the run continues regardless); the first: "
                    f"{plain_error(failures[0])}",
                )
            )


@contextmanager
def held_calls_abandoned(adapter: RemoteAdapter, gateway: GatewayRecord) -> Iterator[Callable[[], None]]:
    """Yield a function to call, from any thread, once the money is spent.

    From then on, examples that need no further model can complete, and the rest are abandoned. A program whose call is
    held would otherwise fail its example by time-out, and that failure would get a score.
    """
    spent, over = threading.Event(), threading.Event()

    def watch() -> None:
        spent.wait()
        waited_s = 0.0
        while min(gateway.quiet_for(), waited_s) < QUIET_S and waited_s < LONGEST_WAIT_S:
            if over.wait(POLL_S):
                return
            waited_s += POLL_S
        if not over.is_set():
            adapter.abandon("the money is spent, and what still needs a model never ends")

    thread = threading.Thread(target=watch, name="abandoning", daemon=True)
    thread.start()
    try:
        yield spent.set
    finally:
        over.set()
        spent.set()
        thread.join()
