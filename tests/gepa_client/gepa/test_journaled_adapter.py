"""The adapter with a journal in a real store: what is recorded is neither sent nor run again."""

import asyncio
import sqlite3
import threading
import tracemalloc

import gepa
import orjson
import pytest

from gepa_client import Interrupted, ProgramReflection, RemoteAdapter, Row
from gepa_client.errors import StoreUnavailable
from gepa_client.journal.entries import FAILURE, SEARCH, AttemptFinished, Entry
from protocol.errors import InvalidParams, ProgramFailed
from tests.gepa_client.journal.sample_runs import RUN
from tests.gepa_client.journal.stored_journals import recording, replaying, watched

SEED = {"system": "s", "style": "t"}
OTHER = {"system": "other", "style": "t"}


def rows(count, first=0):
    return [Row(str(number), {"n": number}) for number in range(first, first + count)]


@pytest.fixture
def store(tmp_path):
    with watched(tmp_path) as made:
        yield made


def connected(server, journal, **options):
    return RemoteAdapter(server.url, first_backoff_s=0.001, max_outage_s=1, journal=journal, **options)


def in_a_process(server, store, work, **options):
    """`work` with an adapter, as one process after the other would do it."""
    with recording(store) as journal, connected(server, journal, **options) as adapter:
        return work(adapter)


def replayed(store, server, work):
    """Run `work` from the journal, with an adapter that no server answers."""
    discovery = None
    with RemoteAdapter(server.url) as adapter:
        discovery = adapter.discovery
    before = len(server.calls)
    with RemoteAdapter(journal=replaying(store), recorded=discovery) as adapter:
        found = work(adapter)
    assert len(server.calls) == before
    return found


def interesting(server):
    """Results with keys in an odd order, numbers of both kinds and failures."""

    def one(candidate, example, traced):
        if example.data["n"] == 2:
            return {"error": {"message": "no", "type": "ValueError"}, **server.failed()}
        return {"side_info": {"z": 1.0, "a": [2, None]}, **server.ok(example.data["n"] / 7, output={"y": 1, "b": "é"})}

    server.evaluate_one = one


def test_the_second_time_nothing_is_sent_and_every_byte_is_the_same(server, store):
    interesting(server)

    def work(adapter):
        first = adapter.batch_evaluate([(SEED, rows(5)), (OTHER, rows(3))])
        traced = adapter.evaluate(rows(3), SEED, capture_traces=True)
        dataset = adapter.make_reflective_dataset(SEED, traced, ["system"])
        return [*first, traced], dataset

    (live, dataset), sent = in_a_process(server, store, work), dict(server.runs)
    (again, same), now = in_a_process(server, store, work), dict(server.runs)
    (third_run, third_dataset) = replayed(store, server, work)
    assert now == sent
    assert len(server.called("evaluate")) == 11
    assert len(server.called("make_reflective_dataset")) == 1
    for batch, second, third in zip(live, again, third_run, strict=True):
        assert batch.scores == second.scores == third.scores
        assert orjson.dumps(batch.outputs) == orjson.dumps(second.outputs) == orjson.dumps(third.outputs)
    assert orjson.dumps(dataset) == orjson.dumps(same) == orjson.dumps(third_dataset)


def test_numbers_follow_items_and_then_positions(server, store):
    async def last_first(candidate, example, traced):
        await asyncio.sleep((10 - example.data["n"]) * 0.01)
        return server.ok(output=[candidate["system"], example.id])

    server.evaluate_one = last_first
    in_a_process(server, store, lambda adapter: adapter.batch_evaluate([(SEED, rows(3)), (OTHER, rows(2, 5))]))
    outputs = [orjson.loads(entry.answer)["output"] for entry in store.entries(RUN.id, SEARCH)]
    assert outputs == [["s", "0"], ["s", "1"], ["s", "2"], ["other", "5"], ["other", "6"]]


def test_calls_are_named_by_run_number_and_attempt_and_recorded_before_they_are_sent(server, store):
    known = []

    def one(candidate, example, traced):
        [made] = [attempt for attempt in store.attempts(RUN.id, SEARCH) if attempt.number == example.data["n"]]
        known.append((example.data["n"], made.attempt, made.endpoint, made.instance, made.outcome))
        return server.ok()

    server.evaluate_one = one
    in_a_process(server, store, lambda adapter: adapter.evaluate(rows(6), SEED))
    assert sorted(known) == [(number, 1, server.url.removesuffix("/rpc"), "first", None) for number in range(6)]
    sent = {params["_meta"]["call_id"] for params in server.called("evaluate")}
    assert sent == {f"{RUN.id}/{number}/1" for number in range(6)}


def test_a_run_interrupted_within_a_batch_keeps_what_came_and_runs_only_the_rest(server, store):
    def work(adapter):
        return [batch.scores for batch in adapter.batch_evaluate([(SEED, rows(12)), (OTHER, rows(12))])]

    server.limits["max_concurrency"] = 3
    server.evaluate_one = lambda candidate, example, _: (
        server.failed("infra_error", "APIConnectionError", "provider is away")
        if candidate["system"] == "other" or example.data["n"] > 6
        else server.ok(example.data["n"] / 12)
    )
    with pytest.raises(Interrupted, match="provider is away") as caught:
        in_a_process(server, store, work, max_attempts=2)
    assert caught.value.status == "paused"
    kept = {entry.number for entry in store.entries(RUN.id, SEARCH)}
    assert kept
    assert max(kept) < 7
    before = len(server.called("evaluate"))
    server.evaluate_one = lambda _, example, __: server.ok(example.data["n"] / 12)
    scores = in_a_process(server, store, work)
    assert scores == [[number / 12 for number in range(12)]] * 2
    ran = [params["_meta"]["call_id"] for params in server.called("evaluate")[before:]]
    assert sorted(int(call_id.split("/")[1]) for call_id in ran) == sorted(set(range(24)) - kept)
    assert any(call_id.endswith("/3") for call_id in ran)  # the count of attempts continues


def test_a_cancelled_run_records_the_calls_in_flight(server, store):
    server.limits["max_concurrency"] = 4
    release = threading.Event()

    async def wait(*_):
        await asyncio.to_thread(release.wait, 10)
        return server.ok(0.5)

    server.evaluate_one = wait
    with recording(store) as journal, connected(server, journal) as adapter:

        def stop():
            while adapter.in_flight < 4 or server.runs.total() < 4:
                if release.wait(0.005):
                    return
            journal.cancel_token.cancel(Interrupted("completed", "max_cost_usd is reached"))
            release.set()

        thread = threading.Thread(target=stop, daemon=True)
        thread.start()
        with pytest.raises(Interrupted, match="max_cost_usd") as caught:
            adapter.evaluate(rows(20), SEED)
        thread.join(5)
        assert adapter.in_flight == 0
    assert caught.value.status == "completed"
    assert server.runs.total() == 4
    assert [entry.number for entry in store.entries(RUN.id, SEARCH)] == [0, 1, 2, 3]
    assert [made.outcome for made in store.attempts(RUN.id, SEARCH)] == ["ok"] * 4


def test_work_that_a_process_never_saw_end_is_collected_not_run_again(server, store):
    server.limits["max_concurrency"] = 4
    together = asyncio.Event()

    async def all_at_once(candidate, example, traced):
        if server.runs.total() == 4:
            together.set()
        await asyncio.wait_for(together.wait(), 5)
        return server.ok(example.data["n"] / 10)

    def dies_before_the_first_answer(rows):
        if any(isinstance(row, AttemptFinished | Entry) for row in rows):
            raise StoreUnavailable("as if the process had died")

    server.evaluate_one = all_at_once
    store.before_write = dies_before_the_first_answer
    with pytest.raises(Interrupted):
        in_a_process(server, store, lambda adapter: adapter.evaluate(rows(4), SEED))
    store.before_write = lambda _: None
    assert [made.outcome for made in store.attempts(RUN.id, SEARCH)] == [None] * 4
    before = len(server.called("evaluate"))
    scores = in_a_process(server, store, lambda adapter: adapter.evaluate(rows(4), SEED).scores)
    assert scores == [0.0, 0.1, 0.2, 0.3]
    assert set(server.runs.values()) == {1}
    asked_again = {params["_meta"]["call_id"] for params in server.called("evaluate")[before:]}
    assert asked_again == {f"{RUN.id}/{number}/1" for number in range(4)}
    assert [(made.attempt, made.outcome) for made in store.attempts(RUN.id, SEARCH)] == [(1, "ok")] * 4


def test_another_candidate_than_the_recorded_one_stops_before_anything_is_sent(server, store):
    in_a_process(server, store, lambda adapter: adapter.evaluate(rows(2), SEED))
    before = len(server.called("evaluate"))
    with pytest.raises(Interrupted, match="this is not the run that was recorded: at 0") as caught:
        in_a_process(server, store, lambda adapter: adapter.evaluate(rows(2), OTHER))
    assert caught.value.status == "failed"
    assert len(server.called("evaluate")) == before


def test_a_program_that_fails_to_make_records_fails_again_in_a_replay(server, store):
    def work(adapter):
        traced = adapter.evaluate(rows(2), SEED, capture_traces=True)
        with pytest.raises(ProgramFailed, match="no such column"):
            adapter.make_reflective_dataset(SEED, traced, ["system"])
        return adapter.evaluate(rows(1), OTHER).scores, str(adapter.failures.first)

    def broken(params):
        raise ProgramFailed("no such column", stage="run")

    server.replies["make_reflective_dataset"] = broken
    live = in_a_process(server, store, work)
    assert in_a_process(server, store, work) == live
    assert replayed(store, server, work) == live
    assert len(server.called("make_reflective_dataset")) == 1
    assert [entry.kind for entry in store.entries(RUN.id, SEARCH)].count(FAILURE) == 1


def test_a_failed_evaluation_is_repeated_unless_gepa_continued_after_it(server, store):
    server.refusals.append(InvalidParams("nonsense"))
    with pytest.raises(InvalidParams):
        in_a_process(server, store, lambda adapter: adapter.evaluate(rows(1), SEED))
    assert in_a_process(server, store, lambda adapter: adapter.evaluate(rows(1), SEED).scores) == [1.0]


def test_adapter_state_is_in_the_record_and_travels_to_a_server_that_does_not_know_it(server, store):
    server.capabilities.append("adapter_state")
    kept = []

    def reply(params):
        kept[:] = [*params.get("adapter_state", kept), len(kept)]
        return {"dataset": {"system": []}, "adapter_state": list(kept)}

    server.replies["make_reflective_dataset"] = reply

    def work(adapter, count):
        for _ in range(count):
            adapter.make_reflective_dataset(SEED, adapter.evaluate(rows(1), SEED, capture_traces=True), ["system"])
        return adapter.get_adapter_state()

    assert in_a_process(server, store, lambda adapter: work(adapter, 2)) == {"adapter_state": [0, 1]}
    kept.clear()
    server.forget("second")
    state = in_a_process(server, store, lambda adapter: work(adapter, 3))
    assert server.called("make_reflective_dataset")[-1]["adapter_state"] == [0, 1]
    assert state["adapter_state"][:2] == [0, 1]
    assert len(server.called("make_reflective_dataset")) == 3


def test_traces_lost_with_their_server_are_traced_anew_and_the_record_stands(server, store):
    server.evaluate_one = lambda _, example, __: server.ok(1.0 / server.runs[example.id])

    def work(adapter):
        batch = adapter.evaluate(rows(2), SEED, capture_traces=True)
        return batch.scores, adapter.make_reflective_dataset(SEED, batch, ["system"])

    def interrupted(params):
        raise InvalidParams

    reply = server.replies
    server.replies = {"make_reflective_dataset": interrupted}
    with pytest.raises(Interrupted):
        in_a_process(server, store, work)
    server.replies = reply
    server.forget("second")
    scores, dataset = in_a_process(server, store, work)
    assert scores == [1.0, 1.0]
    assert [record["Feedback"] for record in dataset["system"]] == ["0.5", "0.5"]
    kinds = [made.kind for made in store.attempts(RUN.id, SEARCH)]
    assert kinds.count("retrace") == 2
    assert kinds.count("evaluate") == 2


def test_rows_beside_the_search_have_numbers_of_their_own(server, store):
    def work(adapter):
        adapter.evaluate(rows(1), SEED)
        return adapter.score_rows("test-0", SEED, rows(3, 10)).scores

    assert in_a_process(server, store, work) == in_a_process(server, store, work) == [1.0] * 3
    assert server.runs.total() == 4
    assert store.parts(RUN.id) == {SEARCH: 1, "test-0": 3}
    assert f"{RUN.id}/test-0/0/1" in {params["_meta"]["call_id"] for params in server.called("evaluate")}


def test_finalize_runs_once_for_each_number_of_metric_calls(server, store):
    def finalized(calls):
        run = {"id": RUN.id, "metric_calls": calls, "candidates": 1, "seed_score": 0.0}
        return in_a_process(server, store, lambda adapter: adapter.finalize(SEED, 0.5, run))

    assert [finalized(1), finalized(1), finalized(2)] == ["done at 0.5"] * 3
    assert len(server.called("finalize")) == 2


def test_a_whole_run_of_gepa_is_replayed_without_a_server(server, store):
    server.evaluate_one = lambda candidate, *_: server.ok(min(1.0, candidate["system"].count("!") / 4))

    def optimize(adapter):
        result = gepa.optimize(
            seed_candidate=adapter.seed_candidate,
            adapter=adapter,
            trainset=rows(4),
            valset=rows(3, 4),
            reflection_strategy=ProgramReflection(adapter),
            module_selector="all",
            max_metric_calls=60,
            logger=Silent(),
            callbacks=adapter.callbacks,
        )
        return result.candidates, result.val_aggregate_scores, result.total_metric_calls

    live = in_a_process(server, store, optimize)
    assert replayed(store, server, optimize) == live
    assert len(live[0]) > 2


@pytest.mark.parametrize("capabilities", [["idempotency", "async", "cancel", "refs"], []])
def test_a_failed_call_ends_the_batch_after_what_is_in_flight_and_the_first_failure_is_raised(
    server, store, capabilities
):
    server.capabilities = capabilities
    server.limits["max_concurrency"] = 4
    release = asyncio.Event()

    async def first_waits(candidate, example, traced):
        if example.id == "0":
            await asyncio.wait_for(release.wait(), 5)
        elif server.runs.total() >= 4:
            release.set()
        return server.ok()

    server.evaluate_one = first_waits
    server.refusals.append(InvalidParams("first"))
    with pytest.raises(InvalidParams):
        in_a_process(server, store, lambda adapter: adapter.evaluate(rows(30), SEED))
    assert server.runs.total() < 8
    assert len(store.entries(RUN.id, SEARCH)) == server.runs.total()


class Silent:
    def log(self, message):
        pass


def test_an_answer_whose_entry_was_never_written_is_collected_and_its_cost_counts_once(server, store):
    def work(adapter):
        scores = adapter.evaluate(rows(4), SEED).scores
        return scores, adapter.journal.spending.cost_usd

    server.evaluate_one = lambda _, example, __: server.ok(example.data["n"] / 4, usage={"cost_usd": 0.25})
    first = in_a_process(server, store, work)
    with sqlite3.connect(store.url) as connection:  # killed after the attempts' ends were written
        connection.execute("DELETE FROM entries")
    connection.close()
    assert in_a_process(server, store, work) == first
    assert server.runs.total() == 4
    server.forget("second")
    with sqlite3.connect(store.url) as connection:
        connection.execute("DELETE FROM entries WHERE number > 1")
    connection.close()
    assert in_a_process(server, store, work) == (first[0], 1.5)
    assert server.runs.total() == 6


def test_large_outputs_stay_in_the_journal_and_are_read_when_asked_for(server, store):
    size, count = 1 << 20, 40
    server.capabilities = ["refs"]  # so that the server, in this process, keeps no answers
    server.limits["max_concurrency"] = 2
    server.evaluate_one = lambda _, example, __: server.ok(output=example.id + "x" * size)

    def work(adapter):
        tracemalloc.start()
        try:
            [batch] = adapter.batch_evaluate([(SEED, rows(count))], False)
            blocks = [trace for trace in tracemalloc.take_snapshot().traces if trace.size >= size]
        finally:
            tracemalloc.stop()
        assert len(blocks) < count / 2  # some are the server's, and of calls that have just ended
        return [output.result()["output"] for output in batch.outputs[-2:]], [o.reference() for o in batch.outputs]

    live, names = in_a_process(server, store, work)
    assert live == [f"{number}{'x' * size}" for number in (38, 39)]
    assert names[7] == {"in_journal": {"run": RUN.id, "part": "search", "number": 7}}
    assert in_a_process(server, store, work) == replayed(store, server, work) == (live, names)
    assert server.runs.total() == count


def test_a_reflective_dataset_of_large_outputs_is_made_of_whole_results_and_replayed(server, store):
    server.evaluate_one = lambda _, example, __: server.ok(output=example.id * 100_000)

    def work(adapter):
        traced = adapter.evaluate(rows(3, 10), SEED, capture_traces=True)
        return adapter.make_reflective_dataset(SEED, traced, ["system"])

    live = in_a_process(server, store, work)
    assert [record["Generated Outputs"] for record in live["system"]] == [f"{n}" * 100_000 for n in (10, 11, 12)]
    assert in_a_process(server, store, work) == replayed(store, server, work) == live
    assert len(server.called("make_reflective_dataset")) == 1
