"""A row whose example always fails in a way that passes, among rows that do not: one never pauses the run."""

import threading
import time
from collections import defaultdict

import pytest

from gepa_client import Interrupted, RemoteAdapter, Row
from gepa_client.analysis.retried_examples import retried_examples
from gepa_client.fleet import cooldown
from gepa_client.journal.entries import PROBE, SEARCH
from gepa_client.report.summary_fields import retry_summary
from tests.gepa_client.gepa.test_journaled_adapter import in_a_process, replayed
from tests.gepa_client.journal.sample_runs import RUN
from tests.gepa_client.journal.stored_journals import recording, watched

SEED = {"system": "s", "style": "t"}
MODEL = "model.example"
WORKED = {MODEL: {"succeeded": 1}}


def limited(server, **more):
    hosts = {MODEL: {"failed": 1, "reason": "429", **more}}
    return server.failed("infra_error", "RateLimitError", "slow down", hosts=hosts)


def rows(count):
    return [Row(str(number), {"n": number}) for number in range(count)]


@pytest.fixture
def store(tmp_path):
    with watched(tmp_path) as made:
        yield made


def stuck(server, *failing):
    """Only these rows fail, each time."""
    server.evaluate_one = lambda _, example, __: (
        limited(server) if example.id in failing else server.ok(0.5, hosts=WORKED)
    )


@pytest.mark.parametrize("hosts", [True, False])
@pytest.mark.parametrize(("at_once", "most"), [(8, None), (1, None), (8, 1)])
def test_a_stuck_row_gets_the_failure_score_after_three_attempts(server, at_once, most, hosts):
    stuck(server, "2")
    if not hosts:  # as a server that does not watch its program's calls
        evaluate = server.evaluate_one
        server.evaluate_one = lambda *given: {**evaluate(*given), "hosts": None}
    server.limits["max_concurrency"] = at_once
    done = []
    with RemoteAdapter(
        server.url, first_backoff_s=0.01, max_in_flight=most, failure_score=0.25, on_example=done.append
    ) as adapter:
        assert adapter.evaluate(rows(3), SEED).scores == [0.5, 0.5, 0.25]
    assert server.runs["2"] == 3
    [result] = [example for example in done if example.id == "2"]
    assert result.status == "program_error"
    assert "failed 3 times" in result.error["message"]


def test_rows_that_have_their_results_run_again_only_if_too_few_others_show_whether_there_is_an_outage(server):
    with RemoteAdapter(server.url, first_backoff_s=0.01) as adapter:
        adapter.evaluate(rows(12), SEED)
        server.runs.clear()
        stuck(server, "2")
        adapter.evaluate(rows(3), SEED)  # row 2 is alone after its first failure
        assert server.runs["2"] == 3
        assert server.runs.total() == 5 + 3  # three rows show it
        server.runs.clear()
        stuck(server, "0", "1", "2")
        assert adapter.evaluate(rows(3), SEED).scores == [0.0, 0.0, 0.0]
        assert server.runs.total() - sum(server.runs[row] for row in "012") == 9
    server.runs.clear()
    stuck(server, "2")
    server.limits["max_concurrency"] = 2
    with RemoteAdapter(server.url, first_backoff_s=0.05) as adapter:
        adapter.evaluate(rows(20), SEED)
    assert sorted(server.runs.values()) == [1] * 19 + [3]


OF_ONE_ROW = {
    "its own host is away": ("gone.example", "refused"),
    "each row calls a host of its own": ("site{row}.example", "host name not found"),
    "it fails with another reason each time": (MODEL, "reason {times}"),
}


@pytest.mark.parametrize("failure", OF_ONE_ROW.values(), ids=OF_ONE_ROW)
def test_one_row_never_pauses_a_run(server, failure):
    def evaluate(_, example, __):
        host, reason = (part.format(row=example.id, times=server.runs[example.id]) for part in failure)
        if example.id == "2":
            return server.failed("infra_error", "ConnectError", "gone", hosts={host: {"failed": 1, "reason": reason}})
        return server.ok(1.0, hosts={host: {"succeeded": 1}} if example.id in host else WORKED)

    server.evaluate_one = evaluate
    with RemoteAdapter(server.url, first_backoff_s=0.01) as adapter:
        assert adapter.evaluate(rows(8), SEED).scores == [1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    assert server.runs["2"] == 3


@pytest.mark.parametrize("lasts", [4, 99])
def test_an_outage_of_half_of_the_rows_is_waited_for_and_pauses_if_it_lasts(server, lasts):
    def evaluate(_, example, __):
        away = int(example.id) % 2 and server.runs[example.id] <= lasts
        return limited(server) if away else server.ok(1.0, hosts=WORKED)

    server.evaluate_one = evaluate
    with RemoteAdapter(server.url, first_backoff_s=0.01) as adapter:
        if lasts == 4:
            assert adapter.evaluate(rows(10), SEED).scores == [1.0] * 10
        else:
            with pytest.raises(Interrupted, match="no result after 5 attempts"):
                adapter.evaluate(rows(10), SEED)


def test_an_outage_of_all_pauses_and_the_resumed_run_has_every_score(server, store):
    away = False

    def until_away(_, example, __):
        nonlocal away
        away = away or server.runs.total() > 4
        return limited(server) if away else server.ok(int(example.id) / 10, hosts=WORKED)

    server.evaluate_one = until_away
    server.limits["max_concurrency"] = 4
    with pytest.raises(Interrupted, match=r"no result after 5 attempts; last error: .*slow down") as caught:
        in_a_process(server, store, lambda adapter: adapter.evaluate(rows(10), SEED))
    assert caught.value.status == "paused"
    kept = [str(entry.number) for entry in store.entries(RUN.id, SEARCH)]
    server.evaluate_one = lambda _, example, __: server.ok(int(example.id) / 10, hosts=WORKED)
    scores = [number / 10 for number in range(10)]
    assert in_a_process(server, store, lambda adapter: adapter.evaluate(rows(10), SEED).scores) == scores
    probes = [attempt for attempt in store.attempts(RUN.id, SEARCH) if attempt.kind == PROBE]
    assert sum(server.runs[row] for row in kept) == len(kept) + len(probes)
    retried = retried_examples(store, RUN.id)
    assert retry_summary(retried).startswith(f"{retried.examples} examples were tried again after ")


def test_a_third_of_all_calls_that_fail_is_no_score(server):
    calls = 0

    def every_third(_, example, __):
        nonlocal calls
        calls += 1
        return limited(server) if calls % 3 == 0 else server.ok(1.0, hosts=WORKED)

    server.evaluate_one = every_third
    with RemoteAdapter(server.url, first_backoff_s=0.001) as adapter:
        assert adapter.evaluate(rows(200), SEED).scores == [1.0] * 200


def test_a_process_that_is_killed_between_two_failures_neither_pays_again_nor_changes_the_result(server, store):
    stuck(server, "0")
    server.limits["max_concurrency"] = 2

    def evaluated(adapter):
        return adapter.evaluate(rows(8), SEED).scores

    evaluate, killed = server.evaluate_one, Interrupted("paused", "killed")

    def second_failure_is_the_last(_, example, trace):
        if server.runs["0"] == 2:
            threading.Timer(0.1, adapter.fleet.interrupt, [killed]).start()
        return evaluate(_, example, trace)

    server.evaluate_one = second_failure_is_the_last
    with (
        recording(store) as journal,
        RemoteAdapter(server.url, first_backoff_s=0.2, journal=journal) as adapter,
        pytest.raises(Interrupted, match="killed"),
    ):
        evaluated(adapter)
    assert server.runs["0"] == 2
    server.evaluate_one, before = evaluate, dict(server.runs)
    assert in_a_process(server, store, evaluated) == [0.0] + [0.5] * 7
    assert {row: server.runs[row] - before[row] for row in before} == {**dict.fromkeys(before, 0), "0": 1}
    recorded = [entry.answer for entry in store.entries(RUN.id, SEARCH)]
    assert replayed(store, server, evaluated) == [0.0] + [0.5] * 7
    assert [entry.answer for entry in store.entries(RUN.id, SEARCH)] == recorded
    assert b"failed 3 times" in recorded[0]
    assert (
        retry_summary(retried_examples(store, RUN.id)) == f"1 example was tried again after 2 failures: {MODEL} 429 (2)"
    )


@pytest.mark.parametrize(("asked_s", "most_s", "waited_s"), [(0.4, 60.0, 0.4), (30.0, 0.3, 0.3)])
def test_examples_that_are_tried_again_wait_as_long_as_their_host_asks(server, monkeypatch, asked_s, most_s, waited_s):
    monkeypatch.setattr(cooldown, "LONGEST_REQUESTED_S", most_s)
    times = defaultdict(list)

    def once(_, example, __):
        times[example.id].append(time.monotonic())
        asks = {"retry_after_s": asked_s} if example.id == "0" else {}
        return limited(server, **asks) if len(times[example.id]) == 1 else server.ok(1.0, hosts=WORKED)

    server.evaluate_one = once
    server.limits["max_concurrency"] = 3
    with RemoteAdapter(server.url, first_backoff_s=0.05, max_in_flight=3) as adapter:
        adapter.evaluate(rows(3), SEED)
    failed = min(first for first, _ in times.values())
    assert all(waited_s <= again - failed < waited_s + 5 for _, again in times.values())
