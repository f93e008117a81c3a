import asyncio
import random
import signal
import subprocess
import sys
import threading

import gepa
import pytest

from gepa_client import Interrupted, ProgramReflection, RemoteAdapter, Row, ServerRow
from gepa_client.errors import BadResponse, ConnectionLost, Refused, RowsError
from protocol.errors import InternalError, LimitExceeded, Overloaded, ProgramFailed, UnknownCandidate
from tests.gepa_client.scripted_server import ScriptedServer, ok

SEED = {"system": "s", "style": "t"}


def rows(count):
    return [Row(str(number), {"n": number}) for number in range(count)]


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
    assert (adapter.tally.examples, adapter.tally.calls, adapter.in_flight) == (30, 30, 0)


def test_a_program_that_wants_whole_batches_gets_each_item_in_one_call_in_order(server, connect):
    server.limits |= {"max_concurrency": 1, "whole_batches": True, "max_batch_size": 4}
    connect().batch_evaluate([(SEED, rows(3)), ({"system": "x", "style": ""}, rows(6))])
    sent = [(params["candidate"]["system"], len(params["batch"])) for params in server.called("evaluate")]
    assert sent == [("s", 3), ("x", 4), ("x", 2)]


def test_metric_calls_counted_by_the_server_reach_gepa(server, connect):
    server.limits |= {"whole_batches": True}
    server.evaluate_one = lambda _, example, __: server.ok(metric_calls=example.data["n"])
    adapter = connect()
    assert adapter.evaluate(rows(4), SEED).num_metric_calls == 6
    server.evaluate_one = lambda *_: server.ok()
    assert adapter.evaluate(rows(4), SEED).num_metric_calls is None


def test_a_batch_counts_at_least_one_metric_call(server, connect):
    server.evaluate_one = lambda *_: server.ok(metric_calls=0)
    assert connect().evaluate(rows(4), SEED).num_metric_calls == 1


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


def test_objectives_that_only_some_results_have_are_none(server, connect):
    server.evaluate_one = lambda _, example, __: (
        server.ok(objective_scores={"a": 1.0}) if example.id == "0" else server.ok()
    )
    assert connect().evaluate(rows(2), SEED).objective_scores is None


def test_a_rollout_without_a_scorer_is_an_error_that_names_the_score_function(server, connect):
    server.evaluate_one = lambda *_: {"status": "rollout", "score": None, "output": 1, "seconds": 0.0}
    with pytest.raises(BadResponse, match="no score function"):
        connect().evaluate(rows(1), SEED)


@pytest.mark.parametrize("refusal", [Overloaded(retry_after_s=0.01), InternalError()])
def test_a_refusal_that_may_pass_is_tried_again_as_a_new_call(server, connect, refusal):
    server.refusals += [refusal, refusal]
    assert connect().evaluate(rows(1), SEED).scores == [1.0]
    assert server.runs == {"0": 1}
    assert len({params["_meta"]["call_id"] for params in server.called("evaluate")}) == 3


@pytest.mark.parametrize("status", ["infra_error", "cancelled"])
def test_a_failure_of_the_infrastructure_is_retried_as_a_new_call_instead_of_scored(server, connect, status):
    examples = []
    server.evaluate_one = lambda _, example, __: (
        server.failed(status, "RateLimitError") if server.runs[example.id] < 3 else server.ok(0.75)
    )
    adapter = connect(on_example=examples.append)
    assert adapter.evaluate(rows(1), SEED).scores == [0.75]
    assert len({params["_meta"]["call_id"] for params in server.called("evaluate")}) == 3
    assert [(done.id, done.status, done.score) for done in examples] == [("0", "ok", 0.75)]
    assert (adapter.tally.examples, adapter.tally.calls) == (1, 3)


def test_after_its_last_attempt_an_example_pauses_the_run_and_is_named_with_the_cause(server, connect):
    server.evaluate_one = lambda *_: server.failed("infra_error", "RateLimitError", "slow down")
    with pytest.raises(Interrupted) as caught:
        connect().evaluate(rows(1), SEED)
    assert caught.value.status == "paused"
    assert "example '0'" in caught.value.reason
    assert "RateLimitError: slow down" in caught.value.reason
    assert server.runs["0"] == 5
    assert not isinstance(caught.value, Exception)


def test_lost_answers_are_collected_so_that_each_example_runs_once(server, proxy, connect):
    adapter = connect(proxy.url)
    proxy.only = "evaluate"
    proxy.faults += ["drop_after", "502", "pass", "drop_after", "502", "502", "drop_after"] * 2
    batch = adapter.evaluate(rows(20), SEED)
    assert batch.scores == [1.0] * 20
    assert set(server.runs.values()) == {1}
    assert len(server.called("evaluate")) > 20


def test_a_server_without_idempotency_gets_no_call_id_and_is_simply_asked_again(server, proxy, connect):
    server.capabilities.clear()
    adapter = connect(proxy.url)
    proxy.only = "evaluate"
    proxy.faults.append("drop_after")
    adapter.evaluate(rows(1), SEED, capture_traces=True)
    assert server.runs["0"] == 2
    assert all(set(params["_meta"]) == {"protocol_version"} for params in server.called("evaluate"))


def test_an_unreachable_server_pauses_the_run(server, proxy, connect):
    adapter = connect(proxy.url, max_attempts=2)
    proxy.only = "evaluate"
    proxy.faults += ["drop_before"] * 50
    with pytest.raises(Interrupted) as caught:
        adapter.evaluate(rows(1), SEED)
    assert caught.value.status == "paused"
    assert isinstance(caught.value.__cause__, ConnectionLost)


@pytest.mark.parametrize("error", [ProgramFailed(stage="start"), UnknownCandidate(unknown=["x"]), LimitExceeded()])
def test_what_no_repetition_can_change_is_raised_at_once_and_stops_the_rest(server, connect, error):
    server.limits["max_concurrency"] = 2
    server.refusals.append(error)
    adapter = connect()
    with pytest.raises(type(error)):
        adapter.evaluate(rows(50), SEED)
    assert len(server.called("evaluate")) < 10
    assert adapter.in_flight == 0


def test_retries_leave_the_global_random_generator_alone(server, connect):
    random.seed(7)
    before = random.getstate()
    server.refusals += [Overloaded(retry_after_s=0.0)] * 3
    connect().batch_evaluate([(SEED, rows(3))])
    assert random.getstate() == before


def test_rows_travel_by_value_or_by_name(server, connect):
    connect().evaluate([Row("7", {"n": 1}), ServerRow("3", "val"), {"n": 2}], SEED)
    sent = sorted((params["batch"][0] for params in server.called("evaluate")), key=str)
    assert {"id": "3", "split": "val"} in sent
    assert {"id": "7", "data": {"n": 1}} in sent
    assert sorted(example["data"]["n"] for example in sent if "data" in example) == [1, 2]


def test_a_row_that_is_not_json_is_refused(connect):
    with pytest.raises(RowsError):
        connect().evaluate([object()], SEED)


def test_a_split_of_the_server_becomes_a_loader_of_its_rows(server, connect):
    loader = connect().dataset("val", first_id=100)
    assert list(loader.all_ids()) == [100, 101, 102, 103, 104]
    assert loader.fetch([104, 100]) == [ServerRow("4", "val", {"n": 4}), ServerRow("0", "val", {"n": 0})]


def test_a_server_that_lists_fewer_rows_than_its_total_is_an_error(server, connect):
    server.replies["list_examples"] = lambda _: {"examples": [], "total": 3}
    with pytest.raises(BadResponse):
        connect().dataset("val")


def test_finalize_sends_the_best_candidate_to_a_program_that_offers_it(server, connect):
    run = {"id": "r", "metric_calls": 1, "candidates": 1, "seed_score": 0.0}
    assert connect().finalize(SEED, 0.5, run) == "done at 0.5"
    server.capabilities.remove("finalize")
    assert connect().finalize(SEED, 0.5, run) is None


def test_a_finalize_that_exceeds_its_deadline_is_abandoned(server, connect):
    server.replies["finalize"] = lambda _: asyncio.sleep(30)
    adapter = connect()
    with pytest.raises(TimeoutError):
        adapter.finalize(SEED, 0.5, {"id": "r", "metric_calls": 1, "candidates": 1, "seed_score": 0.0}, timeout_s=2.0)
    [sent] = server.called("finalize")
    assert server.cancelled == [sent["_meta"]["call_id"]]
    assert adapter.evaluate(rows(1), SEED).scores == [1.0]


def test_an_adapter_that_cannot_start_leaves_nothing_open(server):
    threads = threading.active_count()
    server.replies["discover"] = lambda _: {"nonsense": True}
    with pytest.raises(BadResponse):
        RemoteAdapter(server.url)
    assert threading.active_count() == threads


def test_a_closed_adapter_raises_an_error(server, connect):
    adapter = connect()
    adapter.close()
    adapter.close()
    with pytest.raises(RuntimeError):
        adapter.evaluate(rows(1), SEED)


def test_a_script_that_forgets_to_close_it_ends_without_a_complaint(server):
    script = f"""
from gepa_client import RemoteAdapter
adapter = RemoteAdapter({server.url!r})
print(adapter.evaluate([1, 2], adapter.seed_candidate).scores)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[1.0, 1.0]\n", "")


async def test_it_works_while_another_event_loop_runs_as_in_a_notebook(server, connect):
    assert connect().evaluate(rows(2), SEED).scores == [1.0, 1.0]


def test_gepa_optimize_takes_it_as_any_adapter(server, connect):
    server.evaluate_one = lambda candidate, *_: server.ok(min(1.0, candidate["system"].count("!") / 4))
    adapter = connect()
    result = gepa.optimize(
        seed_candidate=adapter.seed_candidate,
        adapter=adapter,
        trainset=[{"n": number} for number in range(4)],
        valset=[{"n": number} for number in range(4, 7)],
        reflection_strategy=ProgramReflection(adapter),
        module_selector="all",
        max_metric_calls=60,
        logger=Silent(),
    )
    assert result.best_candidate == {"system": "seed system!!!!", "style": "seed style!!!!"}
    assert result.val_aggregate_scores[0] == 0.0
    assert result.val_aggregate_scores[result.best_idx] == 1.0
    of_minibatches = [each for each in server.called("evaluate") if each["batch"][0]["data"]["n"] < 4]
    assert of_minibatches
    assert all(params["capture_traces"] for params in of_minibatches)


def test_a_program_that_proposes_its_own_texts_needs_neither_a_model_nor_a_strategy(server):
    server.evaluate_one = lambda candidate, *_: server.ok(min(1.0, candidate["system"].count("!") / 4))
    script = f"""
import gepa
from gepa_client import RemoteAdapter

with RemoteAdapter({server.url!r}) as adapter:
    result = gepa.optimize(
        seed_candidate=adapter.seed_candidate,
        trainset=[{{"n": number}} for number in range(4)],
        adapter=adapter,
        callbacks=adapter.callbacks,
        max_metric_calls=60,
    )
print(result.val_aggregate_scores[result.best_idx])
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout.splitlines()[-1], done.stderr) == (0, "1.0", "")


def test_a_program_that_proposes_nothing_leaves_the_proposals_to_a_model(server, connect):
    server.capabilities.remove("proposals")
    adapter = connect()
    assert adapter.propose_new_texts is None
    with pytest.raises(AssertionError, match="reflection_lm was not provided"):
        gepa.optimize(adapter.seed_candidate, rows(2), adapter=adapter, max_metric_calls=9)


def test_a_model_may_propose_in_place_of_the_program(server, connect):
    adapter = connect()
    adapter.propose_new_texts = None
    asked = []
    gepa.optimize(
        adapter.seed_candidate,
        rows(2),
        adapter=adapter,
        reflection_lm=lambda prompt: asked.append(prompt) or "better",
        max_metric_calls=9,
        skip_perfect_score=False,
        logger=Silent(),
    )
    assert asked
    assert not server.called("propose_new_texts")


def test_with_its_callbacks_only_parents_are_traced_and_the_run_is_the_same(server, connect):
    server.evaluate_one = lambda candidate, *_: server.ok(min(1.0, candidate["system"].count("!") / 40))

    class Iterations:
        count = 0

        def on_iteration_start(self, _event):
            self.count += 1

    def optimize(callbacks):
        server.calls.clear()
        return gepa.optimize(
            seed_candidate=adapter.seed_candidate,
            adapter=adapter,
            trainset=rows(4),
            valset=rows(3),
            reflection_strategy=ProgramReflection(adapter),
            module_selector="all",
            max_metric_calls=60,
            callbacks=callbacks,
            logger=Silent(),
        )

    adapter = connect()
    iterations = Iterations()
    guided = optimize([*adapter.callbacks, iterations])
    traced = [params for params in server.called("evaluate") if params["capture_traces"]]
    assert len(traced) == 3 * iterations.count  # the parents' minibatches; neither children nor validation
    assert len({params["_meta"]["group"] for params in traced}) == iterations.count
    plain = optimize([])
    assert plain.candidates == guided.candidates
    assert len([params for params in server.called("evaluate") if params["capture_traces"]]) > len(traced)


def test_ctrl_c_during_an_evaluation_cancels_its_calls_on_the_server(server, connect, eventually):
    server.evaluate_one = lambda *_: asyncio.sleep(30)
    adapter = connect()

    def press():
        assert eventually(lambda: server.runs.total() == 3)
        signal.pthread_kill(main.ident, signal.SIGINT)

    main = threading.current_thread()
    thread = threading.Thread(target=press, daemon=True)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        adapter.evaluate(rows(3), SEED)
    thread.join(5)
    sent = {params["_meta"]["call_id"] for params in server.called("evaluate")}
    assert set(server.cancelled) == sent
    assert adapter.in_flight == 0


class Silent:
    def log(self, message):
        pass


@pytest.mark.parametrize("whole_batches", [False, True])
def test_no_more_examples_are_in_flight_than_the_run_allows_over_all_endpoints(connect, host, whole_batches):
    running, most = 0, 0

    async def slow(*_):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return ok()

    servers = [ScriptedServer(), ScriptedServer()]
    for number, one in enumerate(servers):
        one.evaluate_one, one.instance_id = slow, f"instance {number}"
        one.limits["whole_batches"] = whole_batches
    adapter = connect([host.serve(one.handle) for one in servers], max_in_flight=3)
    assert adapter.evaluate(rows(20), SEED).scores == [1.0] * 20
    assert most == 3
    if not whole_batches:
        assert all(one.called("evaluate") for one in servers)


def test_the_limit_on_the_time_of_an_example_travels_with_every_call(server, connect):
    server.capabilities.append("example_timeout")
    connect(example_timeout_s=1.5).evaluate(rows(3), SEED)
    assert [params["_meta"]["example_timeout_s"] for params in server.called("evaluate")] == [1.5] * 3


def test_a_server_that_cannot_be_given_that_limit_is_refused(connect):
    with pytest.raises(Refused, match="does not offer `example_timeout`, which --example-timeout-s needs"):
        connect(example_timeout_s=1.5)
