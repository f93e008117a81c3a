"""What the heartbeat of a run states while nothing finishes."""

import time
from dataclasses import replace
from datetime import datetime

import pytest

from gepa_client.fleet import Address
from gepa_client.fleet.endpoint import Endpoint
from gepa_client.gepa.batch_evaluator import ExampleDone
from gepa_client.journal.entries import Spending
from gepa_client.journal.requests import SpendingTotals
from gepa_client.journal.run_events import Phase, Progress
from gepa_client.run import run_counters, run_view
from gepa_client.run.run_counters import RunCounters
from gepa_client.transport.calls import Call, Reply


def test_a_run_in_which_nothing_finishes_states_so_and_lists_what_is_in_flight_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_counters, "LONG_S", 0.0)
    noted = RunCounters({}, SpendingTotals([]))
    emit = noted.observed(lambda _event: None)
    endpoint = Endpoint.at(Address("http://127.0.0.1:9", token="t"), example_timeout_s=7.0)
    noted.endpoints = lambda: [endpoint]
    emit(Phase(phase="optimizing"))
    emit(Progress(evaluated=0, in_flight=2))
    assert "last_result" not in noted.changes()["counters"]["now"]
    time.sleep(0.01)
    emit(Progress(evaluated=3, in_flight=2))
    noted.example_done(_done("ok", 0.5))
    noted.example_done(_done("timeout", 7.0))
    assert noted.changes()["counters"]["now"]["rate"] > 0

    def call(row: str) -> Call[None]:
        return Call("evaluate", {}, lambda _answer: Reply(None), row, request=("abc", row))

    with endpoint.answering(call("6")), endpoint.answering(call("7")):
        monkeypatch.setattr(run_view, "RATE_WINDOW_S", 0.0)
        found = noted.changes()["counters"]["now"]
    assert (found["rate"], found["usual_s"], found["timeouts"]) == (0, 0.5, 1)
    assert datetime.fromisoformat(found["last_result"]).tzinfo is not None
    assert found["no_result_s"] < 10
    listed = [(each["row"], each["limit_s"], each["endpoint"]) for each in found["longest"]]
    assert listed == [("6", 7.0, "http://127.0.0.1:9"), ("7", 7.0, "http://127.0.0.1:9")]
    assert noted.changes()["counters"]["now"]["longest"] == []


def _done(status: str, seconds: float) -> ExampleDone:
    return ExampleDone("1", {}, status, 1.0, seconds, error=None)


def test_what_earlier_processes_spent_counts_in_every_figure() -> None:
    before = Spending("evaluate", "ok", 3, 2, 1, 1, 0.5, 70, 8, 0.1)
    totals = SpendingTotals([before, replace(before, kind="score", cost_usd=0.25)])
    totals.finished("evaluate", {"cost_usd": 0.25, "input_tokens": 30}, 1, 0)
    tally = totals["evaluate"]
    assert (totals.cost_usd, totals.unpriced, totals.unreported) == (1.0, *[{"evaluate": 1, "score": 1}] * 2)
    assert (tally.calls, tally.cost_usd, tally.input_tokens, tally.output_tokens) == (3, 0.75, 100, 8)
