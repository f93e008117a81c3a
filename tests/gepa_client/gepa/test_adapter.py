import asyncio
import signal
import threading

import pytest

from gepa_client import RemoteAdapter, ServerRow
from tests.gepa_client.scripted_server import AtOnce, ScriptedServer, ok, rows
from tests.support.waiting import until

SEED = {"system": "s", "style": "t"}


@pytest.fixture
def connect(server):
    opened = []

    def make(url=None, **options):
        adapter = RemoteAdapter(url or server.url, first_backoff_s=0.001, **options)
        opened.append(adapter)
        return adapter

    yield make
    for adapter in opened:
        adapter.close()


def test_results_keep_the_order_of_the_examples(server, connect):
    async def last_first(candidate, example, traced):
        await asyncio.sleep((30 - example.data["n"]) * 0.002)
        return server.ok(example.data["n"] / 100, output=candidate["system"])

    server.evaluate_one = last_first
    pairs = [({"system": name, "style": ""}, rows(15)) for name in "ab"]
    first, second = connect().batch_evaluate(pairs)
    assert first.scores == second.scores == [number / 100 for number in range(15)]
    assert (set(first.outputs), set(second.outputs)) == ({"a"}, {"b"})


def test_single_examples_of_all_items_slide_through_one_window(server, connect):
    server.limits["max_concurrency"] = 6
    slow = threading.Event()
    adapter = connect()

    async def one_is_slow(candidate, example, traced):
        if (candidate["system"], example.id) == ("a", "0"):
            await asyncio.to_thread(slow.wait, 5)
        elif server.runs.total() == 30:
            slow.set()  # everything else was sent while the first example still ran: no barrier
        await asyncio.sleep(0.005)
        return server.ok()

    server.evaluate_one = one_is_slow
    adapter.batch_evaluate([({"system": name, "style": ""}, rows(10)) for name in "abc"])
    assert slow.is_set()
    assert server.most_at_once == 6
    assert all(len(params["batch"]) == 1 for params in server.called("evaluate"))
    assert (adapter.tally.examples, adapter.tally.calls, adapter.fleet.in_flight) == (30, 30, 0)


def test_a_program_that_wants_whole_batches_gets_each_item_in_one_call_in_order(server, connect):
    server.limits |= {"max_concurrency": 1, "whole_batches": True, "max_batch_size": 4}
    connect().batch_evaluate([(SEED, rows(3)), ({"system": "x", "style": ""}, rows(6))])
    sent = [(params["candidate"]["system"], len(params["batch"])) for params in server.called("evaluate")]
    assert sent == [("s", 3), ("x", 4), ("x", 2)]


def test_the_programs_failures_score_the_failure_score_in_every_objective(server, connect):
    def some_fail(candidate, example, traced):
        if example.data["n"] == 1:
            return server.failed()
        if example.data["n"] == 2:
            return server.failed("timeout", "timeout")
        return server.ok(0.5, objective_scores={"speed": 0.25, "taste": 1})

    server.evaluate_one = some_fail
    batch = connect(failure_score=-1.0).evaluate(rows(3), SEED)
    assert batch.scores == [0.5, -1.0, -1.0]
    lost = {"speed": -1.0, "taste": -1.0}
    assert batch.objective_scores == [{"speed": 0.25, "taste": 1}, lost, lost]


def test_objectives_that_only_some_results_have_are_none_and_no_batch_is_for_free(server, connect):
    server.evaluate_one = lambda _, example, __: (
        server.ok(objective_scores={"a": 1.0}, metric_calls=0) if example.id == "0" else server.ok(metric_calls=0)
    )
    batch = connect().evaluate(rows(2), SEED)
    assert (batch.objective_scores, batch.num_metric_calls) == (None, 1)


@pytest.mark.parametrize("status", ["infra_error", "cancelled"])
def test_a_failure_of_the_infrastructure_is_retried_as_a_new_call_instead_of_scored(server, connect, status):
    examples, paid = [], {"usage": {"cost_usd": 0.25}}
    attempts = [server.failed(status, "RateLimitError"), server.failed(status, **paid), server.ok(0.75, **paid)]
    server.evaluate_one = lambda _, example, __: attempts[server.runs[example.id] - 1]
    adapter = connect(on_example=examples.append)
    assert adapter.evaluate(rows(1), SEED).scores == [0.75]
    assert len({params["_meta"]["call_id"] for params in server.called("evaluate")}) == 3
    assert [(done.id, done.status, done.score) for done in examples] == [("0", "ok", 0.75)]
    assert (adapter.tally.examples, adapter.tally.calls) == (1, 3)
    spent = adapter.journal.spending["evaluate"]
    assert (spent.cost_usd, spent.unpriced) == (0.5, 0), "each attempt is paid for that states what it cost"


def test_a_split_of_the_server_becomes_a_loader_of_its_rows(connect, monkeypatch):
    monkeypatch.setattr("gepa_client.gepa.rows.PAGE", 2)
    adapter = connect()
    with pytest.raises(ValueError, match="keeps no adapter state"):
        adapter.set_adapter_state({"of": "another server"})
    loader = adapter.dataset("val", first_id=100)
    assert list(loader.all_ids()) == [100, 101, 102, 103, 104]
    assert loader.fetch([104, 100]) == [ServerRow("4", "val", {"n": 4}), ServerRow("0", "val", {"n": 0})]


async def test_it_works_while_another_event_loop_runs_as_in_a_notebook(connect):
    assert connect().evaluate(rows(2), SEED).scores == [1.0, 1.0]


def test_ctrl_c_during_an_evaluation_cancels_its_calls_on_the_server(server, connect):
    server.evaluate_one = lambda *_: asyncio.sleep(30)
    adapter = connect()

    def press():
        until(lambda: server.runs.total() == 3)
        signal.pthread_kill(main.ident, signal.SIGINT)

    main = threading.current_thread()
    thread = threading.Thread(target=press, daemon=True)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        adapter.evaluate(rows(3), SEED)
    thread.join(5)
    sent = {params["_meta"]["call_id"] for params in server.called("evaluate")}
    assert set(server.cancelled) == sent
    assert adapter.fleet.in_flight == 0


@pytest.mark.parametrize("whole_batches", [False, True])
def test_no_more_examples_are_in_flight_than_the_run_allows_over_all_endpoints(connect, host, whole_batches):
    at_once = AtOnce()
    servers = [ScriptedServer(), ScriptedServer()]
    for number, one in enumerate(servers):
        one.evaluate_one, one.instance_id = at_once(lambda *_: ok()), f"instance {number}"
        one.limits["whole_batches"] = whole_batches
    adapter = connect([host.serve(one.handle) for one in servers], concurrency=3)
    assert adapter.slots == 3
    assert adapter.evaluate(rows(20), SEED).scores == [1.0] * 20
    assert at_once.most == 3
    if not whole_batches:
        assert all(one.called("evaluate") for one in servers)
