"""A run through the command line in every store: stopped by its budget, extended, and replayed."""

from collections.abc import Callable

import pytest

from gepa_client.journal import Store
from tests.gepa_client.conftest import Cli, Ran, Serve
from tests.gepa_client.word_program import Script


def candidates(ran: Ran) -> list[tuple[object, ...]]:
    return [(event["texts"], event["score"]) for event in ran.events if event["event"] == "candidate"]


@pytest.mark.parametrize("store_url", ["mongo", pytest.param("http", marks=pytest.mark.long)], indirect=True)
def test_a_run_is_extended_and_replayed_from_any_store(
    serve: Serve, cli: Cli, words: Script, store_url: str, another: Callable[[], Store]
) -> None:
    first = cli("optimize", serve(words), "--max-metric-calls", 40, "--store", store_url, "--check", "off", "--json")
    assert first.status == 0, first.stderr
    run_id = first.event("started")["run_id"]
    store = another()
    before = store.run(run_id)
    assert before.started is not None
    assert before.completed is not None
    assert before.created <= before.started < before.completed <= before.updated
    more = cli("resume", run_id, "--max-metric-calls", 100, "--store", store_url, "--json")
    assert more.status == 0, more.stdout
    assert len(candidates(more)) > len(candidates(first))
    replay = cli("replay", run_id, "--store", store_url, "--json")
    assert (replay.status, candidates(replay)) == (0, candidates(more))
    run = store.run(run_id)
    assert (run.status, run.claim.owner, run.program) == ("completed", None, "scripted")
    assert (run.started, run.completed or "") > (before.started, before.completed), "extended, it completed anew"
    assert run.counters["metric_calls"] == more.event("finished")["metric_calls"]
    assert run.best is not None
    assert run.best["score"] == max(score for _, score in candidates(more))  # type: ignore[type-var]
    assert [kept.texts for kept in store.candidates(run_id)] == [texts for texts, _ in candidates(more)]
    assert len(words.calls("evaluate")) == sum(
        attempt.kind == "evaluate" for part in store.parts(run_id) for attempt in store.attempts(run_id, part)
    )
