"""The guards end runs that GEPA would continue: iterations keep failing, or a cost limit cannot hold."""

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from gepa.core.callbacks import IterationEndEvent

from gepa_client.errors import ConnectionLost, Interrupted, RecordedFailure
from gepa_client.gepa.hooks import Failures
from gepa_client.journal.entries import COMPLETION
from gepa_client.journal.journal import Journal
from gepa_client.journal.requests import request_key
from gepa_client.journal.run_events import Event, StepFailed, Warned
from gepa_client.run.failures import FailureGuard, RunWarnings
from gepa_client.run.gateway_record import GatewayRecord
from gepa_client.run.stops import BetweenExamples
from gepa_client.settings.run_config import RunConfig
from tests.gepa_client.journal.sample_runs import RUN
from tests.gepa_client.journal.stored_journals import watched


class Iterations:
    """Plays iterations to a guard as GEPA would."""

    def __init__(self) -> None:
        self.failures = Failures()
        self.events: list[Event] = []
        self.guard = FailureGuard(self.failures, self.events.append)
        self.count = 0

    def one(self, *, fails: Exception | None = None, proposes: bool = False, raises: Exception | None = None) -> None:
        self.count += 1
        event = cast("Any", {"iteration": self.count, "exception": raises})
        self.guard.on_iteration_start(event)
        if fails is not None:
            self.failures.record("reflection", fails)
        if proposes:
            self.guard.on_proposal_end(event)
        if raises is not None:
            self.guard.on_error(event)
        self.guard.on_iteration_end(event)


def test_an_iteration_without_work_neither_counts_nor_resets() -> None:
    run = Iterations()
    for failed in ("first", "second", "third", "fourth"):
        run.one(fails=ValueError(failed))
        run.one()
    with pytest.raises(Interrupted) as ended:
        run.one(fails=ValueError("fifth"))
    assert ended.value.status == "failed"
    assert (
        "5 iterations in a row failed; the first, at reflection in iteration 1: ValueError: first" in ended.value.reason
    )


LOST = ConnectionLost("the model m does not answer at http://127.0.0.1:1/v1: refused")


def test_a_run_pauses_after_three_iterations_in_a_row_without_a_connection_to_the_model() -> None:
    run = Iterations()
    for fails in (LOST, LOST, ValueError("x"), LOST, LOST):
        run.one(fails=fails)
    run.one(proposes=True)
    run.one(fails=LOST)
    run.one()
    run.one(fails=LOST)
    with pytest.raises(Interrupted) as ended:
        run.one(fails=LOST)
    assert ended.value.status == "paused"
    assert ended.value.reason == f"no connection to the reflection model in 3 iterations in a row: {LOST}"
    assert all(isinstance(event, StepFailed) for event in run.events)


def test_a_limit_on_all_money_is_warned_of_for_each_kind_of_work_without_a_price() -> None:
    events: list[Event] = []
    journal = Journal("r")
    config = RunConfig(url=("http://127.0.0.1:1",), reflection_lm="openai/x", max_cost_usd=1.0)
    guard = RunWarnings(config, journal, events.append)
    journal.spending.finished("completion", {"cost_usd": 0.25}, examples=1, unpriced=0)
    journal.spending.finished("evaluate", {"cost_usd": None}, examples=1, unpriced=1)
    journal.spending.finished("score", None, examples=1, unpriced=1)
    guard.on_iteration_end(cast("IterationEndEvent", {"iteration": 1}))
    assert [event.message for event in events if isinstance(event, Warned)] == [
        f"no price is known for {what}, so `max_cost_usd` cannot hold: have the server report `usage.cost_usd`"
        for what in ("the program's examples", "scores made elsewhere")
    ]


def test_a_time_limit_that_a_user_raised_or_of_a_run_that_is_over_ends_no_run() -> None:
    journal, before = Journal("r"), set(threading.enumerate())
    config = RunConfig(url=("http://127.0.0.1:1",), max_seconds=600)
    with BetweenExamples(config, journal, cast("Any", SimpleNamespace(active_seconds=0.0))) as limits:
        with journal.executing(journal.ask([request_key(COMPLETION, "first")])):
            [timer] = {*threading.enumerate()} - before
        limits.set_limits(config.model_copy(update={"max_seconds": 6000}))
        [later] = {*threading.enumerate()} - before - {timer}
        timer.join(10)
        assert not timer.is_alive()
    later.join(10)
    assert not later.is_alive()


def test_money_that_was_spent_before_the_run_had_a_journal_ends_it_before_its_first_request(tmp_path: Path) -> None:
    journal, gateway, counters = Journal(RUN.id), GatewayRecord(), cast("Any", SimpleNamespace(active_seconds=0.0))
    gateway.capped("there is no more")
    with (
        BetweenExamples(RunConfig(url=("http://127.0.0.1:1",)), journal, counters) as limits,
        watched(tmp_path) as store,
    ):
        gateway.begin(journal, store, lambda _event: None, limits.capped)
        with pytest.raises(Interrupted, match="there is no more"), journal.executing([]):
            pytest.fail("nothing may be paid for")


def test_a_recorded_failure_that_was_hopeless_does_not_end_a_replay() -> None:
    run = Iterations()
    run.guard.is_hopeless = lambda _: True
    run.one(fails=RecordedFailure("no such model"))
    with pytest.raises(Interrupted, match="no such model"):
        run.one(fails=ValueError("no such model"))
