"""What a user reads about a program in TypeScript, and in the process that called `optimize`."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gepa_client.journal.run_events import FleetChanged
from gepa_client.report.calling_program import blocked_hint, by_typescript, load_call, where_of
from gepa_client.report.event_words import event_line

LOST = "ConnectionLost: no answer from http://127.0.0.1:1/rpc within 19.1 s"


@pytest.mark.parametrize(("error", "hinted"), [(LOST, True), ("ConnectionLost: cannot connect", False), ("", False)])
def test_a_program_that_does_not_answer_is_hinted_to_block_its_event_loop(error: str, hinted: bool) -> None:
    waiting = FleetChanged(kind="waiting", url=None, detail=f"no endpoint is left; last error: {error}", after=600.0)
    assert blocked_hint(error) == ""
    assert "isolated" not in event_line(waiting).text
    with called_by_typescript():
        assert ("`isolated: true`" in blocked_hint(error)) is hinted
        assert ("`isolated: true`" in event_line(waiting).text) is hinted


def test_a_program_is_named_by_where_it_runs_and_its_result_is_loaded_in_its_language() -> None:
    assert where_of("evolverpc 1", "python") == "behind evolverpc 1 (python)"
    with called_by_typescript():
        assert [where_of("evolverpc 1", each) for each in ("typescript", "python")] == [
            "in this process",
            "in child processes",
        ]
        assert load_call("python", "runs/1").endswith('; loadCandidate("runs/1")')
    assert all(load_call(each, "runs/1").endswith('; loadCandidate("runs/1")') for each in ("typescript", "node"))
    assert load_call("python", "runs/1") == 'import evolverpc; evolverpc.load_candidate("runs/1")'
    assert load_call("perl", "runs/1") == "cat runs/1/best_candidate.json"


@contextmanager
def called_by_typescript() -> Iterator[None]:
    token = by_typescript.set(True)
    try:
        yield
    finally:
        by_typescript.reset(token)
