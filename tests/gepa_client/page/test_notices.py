"""What a page states first of a run: that it is lost, stuck, waits or has stopped, and what to do."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gepa_client.journal.run_events import FailureGroup
from gepa_client.page.notices import NoticeInput
from gepa_client.page.page_events import CommandHint, FailureCounts, LongInFlight, Notice, Now, Run
from gepa_client.page.stuck_examples import stuck_s

TRACEBACK = (
    'Traceback (most recent call last):\n  File "/a/b.py", line 3, in run\n    f()\n'
    '  File "/a/c.py", line 8, in f\n    s.recv(1)\nTimeoutError\n'
)
RUN: dict[str, Any] = {
    **dict.fromkeys(Run.model_fields),
    "event": "run",
    "run_id": "4f2",
    "status": "running",
    "created": "2026-01-05T10:00:00Z",
    "settings": {},
    "components": ["rules"],
    "splits": {},
    "driven": True,
    "store": "runs.db",
    "warnings": [],
    "commands": [CommandHint(command="evolverpc resume 4f2", what="continue the run")],
}
CALM: dict[str, Any] = {
    **dict.fromkeys(("iteration", "metric_calls", "active_seconds", "beat_age_s")),
    "lost": False,
    "phase": "optimizing",
    "in_flight": 2,
    "usual_s": 0.5,
    "no_result_s": 1.0,
    "last_result": "2026-01-05T10:00:00Z",
    "longest": [],
}


def waiting(seconds: float) -> list[LongInFlight]:
    return [LongInFlight(row="val 7", candidate="2", seconds=seconds, limit_s=300.0, endpoint="http://127.0.0.1:8100")]


def failures(status: Any, count: int) -> FailureCounts:
    group: dict[str, Any] = {
        "type": "KeyError",
        "status": status,
        "count": count,
        "rows": [],
        "row_count": 1,
        "candidates": {},
    }
    shown = FailureGroup(**group, message="'team'", traceback=TRACEBACK, row="val 7", candidate="2")
    return FailureCounts(failed=count, evaluated=900, groups=[shown], words=[""], cells={})


def situation(found: FailureCounts | None = None, *, seed_failed: bool = False, **changed: Any) -> NoticeInput:
    run = {name: changed.pop(name) for name in ("status", "driven", "reason", "reflection_model") if name in changed}
    return NoticeInput(Run(**(RUN | run)), Now(**(CALM | changed)), found, seed_failed, "my runs.db")


@pytest.mark.parametrize(
    ("seconds", "changed"),
    [
        (None, {}),
        (None, {"no_result_s": 20.0, "longest": waiting(20)}),
        (None, {"usual_s": 60.0, "no_result_s": 400.0, "longest": waiting(400)}),
        (None, {"no_result_s": 2.0, "longest": waiting(200)}),  # others bring results
        (None, {"no_result_s": 200.0, "longest": waiting(12)}),  # reflection took the time
        (40.0, {"no_result_s": 40.0, "longest": waiting(40)}),
        (640.0, {"no_result_s": 640.0, "timeouts": 2, "longest": waiting(11)}),  # a time-out ends no stall
        (None, {"no_result_s": None, "usual_s": None, "last_result": None, "longest": waiting(60)}),
        (130.0, {"no_result_s": None, "usual_s": None, "last_result": None, "longest": waiting(130)}),
        (None, {"no_result_s": 640.0, "timeouts": 2, "lost": True}),
        (None, {"no_result_s": 640.0, "timeouts": 2, "waiting_for": "no endpoint is left"}),
        (None, {"no_result_s": 640.0, "timeouts": 2, "in_flight": 0}),
    ],
)
def test_examples_are_stuck_that_wait_much_longer_than_usual(seconds: float | None, changed: dict[str, Any]) -> None:
    assert stuck_s(Now(**(CALM | changed))) == seconds


def one(found: NoticeInput) -> Notice:
    [notice] = found.notices()
    return notice


def test_a_stuck_run_names_its_rows_and_what_to_do() -> None:
    stuck: dict[str, Any] = {"no_result_s": 640.0, "timeouts": 2, "longest": waiting(640)}
    notice = one(situation(failures("timeout", 6), **stuck))
    words = " ".join(notice.text)
    assert notice.kind == "stuck"
    assert notice.title == "No result for 11 min: 2 examples in flight; 2 timed out before"
    assert "val 7 with candidate 2 for 11 min" in words and "http://127.0.0.1:8100" in words
    assert "after 5 min, as a time-out, which counts as 0." in words
    assert notice.commands == RUN["commands"]


def test_a_run_states_what_it_waits_for_and_for_how_long() -> None:
    ago = (datetime.now(UTC) - timedelta(minutes=5)).isoformat()
    waits = one(situation(waiting_for="no endpoint is left; last error: connection refused", waiting_since=ago))
    assert waits.title == "Waits for a server that answers, for 5 min" and "connection refused" in waits.text[0]
    assert one(situation(waiting_for="x", waiting_since="\u202eyesterday")).title == "Waits for a server that answers"
    asked: dict[str, Any] = {"reflecting_since": ago, "reflecting": ["rules"], "reflection_model": "openai/gpt-5"}
    waits = one(situation(**asked, in_flight=0))
    assert waits.title == "Waits for an answer of the model openai/gpt-5, for 5 min" and "rules" in waits.text[0]
    quiet = one(situation(no_result_s=45.0, usual_s=5.0, longest=waiting(45)))
    assert (quiet.kind, quiet.title) == ("waiting", "No result for 45 s: 2 examples in flight")
    assert "The server ends each after 5 min" in quiet.text[1]
    assert situation(**{**asked, "reflecting_since": datetime.now(UTC).isoformat()}).notices() == []


def test_a_stopped_run_states_why_and_what_recorded_failures_count_as_if_the_program_failed() -> None:
    stopped: dict[str, Any] = {"driven": False, "status": "paused", "reason": "26 of the last 50 examples failed\nmore"}
    calm = one(situation(**stopped))
    assert (calm.title, calm.text) == ("The run is paused", ["26 of the last 50 examples failed"])
    failed = one(situation(failures("program_error", 7), **stopped))
    assert "7 of 900 examples failed, first with KeyError: 'team'" in failed.text[1]
    [resume] = failed.commands
    assert "7 recorded failures count as 0 also after the fix" in resume.what
    again = one(situation(failures("program_error", 7), seed_failed=True, **stopped))
    assert "start a new run: the seed failed" in again.text[2]
    lost = one(situation(lost=True))
    assert lost.title == "The optimizer sends no heartbeat" and "resume 4f2" in lost.commands[0].command
    assert situation(**{**stopped, "status": "completed"}).notices() == []
