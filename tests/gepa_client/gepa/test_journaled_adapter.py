"""The adapter with a journal in a real store: what is recorded is neither sent nor run again."""

import asyncio
import tracemalloc

import orjson
import pytest

from gepa_client import Interrupted, RemoteAdapter
from gepa_client.analysis.failed_examples import failed_examples, retried_examples
from gepa_client.journal.entries import SEARCH
from protocol.errors import InvalidParams, UnknownCandidate
from tests.gepa_client.journal.sample_runs import RUN
from tests.gepa_client.journal.stored_journals import discovery_of, recording, replaying
from tests.gepa_client.scripted_server import rows

SEED = {"system": "s", "style": "t"}
OTHER = {"system": "other", "style": "t"}


def connected(server, journal, **options):
    return RemoteAdapter(server.url, first_backoff_s=0.001, max_outage_s=1, journal=journal, **options)


def in_a_process(server, store, work, **options):
    """`work` with an adapter, as one process after the other would do it."""
    with recording(store) as journal, connected(server, journal, **options) as adapter:
        return work(adapter)


def replayed(store, server, work):
    """Run `work` from the journal, with an adapter that no server answers."""
    discovery = discovery_of(server.url)
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


def test_of_two_failures_that_of_the_first_example_is_raised(server, store):
    second = asyncio.Event()

    async def fail(candidate, example, traced):
        if example.id == "0":
            await asyncio.wait_for(second.wait(), 5)
            await asyncio.sleep(0.02)
        second.set()
        raise UnknownCandidate(unknown=[example.id])

    server.evaluate_one = fail
    with pytest.raises(UnknownCandidate) as caught:
        in_a_process(server, store, lambda adapter: adapter.evaluate(rows(2), SEED))
    assert caught.value.details == {"unknown": ["0"]}


def test_of_a_whole_batch_that_is_recorded_in_part_the_rest_counts(server, store):
    server.limits |= {"whole_batches": True, "max_batch_size": 2}
    server.evaluate_one = lambda _, example, __: server.ok() if example.data["n"] < 2 else server.failed("infra_error")
    with pytest.raises(Interrupted):
        in_a_process(server, store, lambda adapter: adapter.evaluate(rows(4), SEED), max_attempts=1)
    server.limits["max_batch_size"] = 4
    server.evaluate_one = lambda _, example, __: server.ok(0.5) if example.data["n"] < 3 else server.failed()

    def work(adapter):
        return adapter.evaluate(rows(4), SEED).scores, adapter.tally.examples

    assert in_a_process(server, store, work) == ([1.0, 1.0, 0.5, 0.0], 2)
    assert failed_examples(store, RUN.id).failed == 1
    assert retried_examples(store, RUN.id).examples == 2


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
