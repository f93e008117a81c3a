import gepa
import pytest

from gepa_client import Interrupted, ProgramReflection, RemoteAdapter, Row
from protocol.errors import InvalidParams, Overloaded, ProgramFailed, TrajectoryExpired

SEED = {"system": "s", "style": "t"}
ROWS = [Row(str(number), {"n": number}) for number in range(3)]


@pytest.fixture
def adapter(server):
    server.capabilities.append("adapter_state")
    with RemoteAdapter(server.url, first_backoff_s=0.001, max_outage_s=0.3) as made:
        yield made


def traced(adapter, rows=ROWS):
    return adapter.evaluate(rows, SEED, capture_traces=True)


def test_refs_go_back_with_the_examples_and_records_come_in_their_order(server, adapter):
    server.evaluate_one = lambda _, example, __: server.ok(example.data["n"] / 10)
    dataset = adapter.make_reflective_dataset(SEED, traced(adapter), ["system"])
    assert [record["Feedback"] for record in dataset["system"]] == ["0.0", "0.1", "0.2"]
    [sent] = server.called("make_reflective_dataset")
    assert sent["eval_batch"]["batch"] == [{"id": row.id, "data": row.data} for row in ROWS]
    refs = [result["trajectory_ref"] for result in sent["eval_batch"]["results"]]
    assert len({server.traces[ref][0] for ref in refs}) == 1  # one minibatch, one group
    assert [server.traces[ref][1] for ref in refs] == ["0", "1", "2"]


def test_trajectories_travel_inline_if_the_server_keeps_none(server):
    server.capabilities.remove("refs")
    with RemoteAdapter(server.url) as adapter:
        adapter.make_reflective_dataset(SEED, traced(adapter), ["system"])
    [sent] = server.called("make_reflective_dataset")
    assert [result["trajectory"] for result in sent["eval_batch"]["results"]] == [{"of": row.id} for row in ROWS]
    assert all("group" not in params["_meta"] for params in server.called("evaluate"))


def test_an_untraced_batch_has_no_trajectories(adapter):
    assert adapter.evaluate(ROWS, SEED).trajectories is None


def test_expired_trajectories_are_traced_once_more_while_the_scores_stand(server, adapter):
    server.evaluate_one = lambda _, example, __: server.ok(1.0 / server.runs[example.id])
    batch = traced(adapter)
    server.forget("second")
    dataset = adapter.make_reflective_dataset(SEED, batch, ["system"])
    assert [record["Feedback"] for record in dataset["system"]] == ["0.5"] * 3
    assert batch.scores == [1.0] * 3
    assert (adapter.retraced.examples, adapter.tally.examples) == (3, 3)
    assert adapter.fleet.clients[0].instance_id == "second"


def test_trajectories_that_expire_again_at_once_pause_the_run(server, adapter):
    def always(params):
        raise TrajectoryExpired(refs=["x"])

    server.replies["make_reflective_dataset"] = always
    batch = traced(adapter)
    with pytest.raises(Interrupted, match="raise max_trace_bytes") as caught:
        adapter.make_reflective_dataset(SEED, batch, ["system"])
    assert caught.value.status == "paused"
    assert adapter.retraced.examples == 3


def replaced_before_each_dataset(server, times):
    """Let another process answer in the server's place before each of the first datasets is made."""
    make = server.make_reflective_dataset
    names = iter(f"process {number}" for number in range(times))

    def reply(params):
        if (name := next(names, None)) is not None:
            server.forget(name)
        return make(params)

    server.replies["make_reflective_dataset"] = reply


def test_a_minibatch_is_traced_again_each_time_its_server_is_replaced(server, adapter):
    replaced_before_each_dataset(server, 3)
    dataset = adapter.make_reflective_dataset(SEED, traced(adapter), ["system"])
    assert len(dataset["system"]) == len(ROWS)
    assert adapter.retraced.examples == 3 * len(ROWS)


def test_a_server_replaced_without_end_pauses_the_run_and_is_the_reason_given(server, adapter):
    replaced_before_each_dataset(server, 100)
    batch = traced(adapter)
    with pytest.raises(Interrupted, match="the server that kept them ended") as caught:
        adapter.make_reflective_dataset(SEED, batch, ["system"])
    assert caught.value.status == "paused"
    assert adapter.retraced.examples == 5 * len(ROWS)


def raising(error):
    def reply(params):
        raise error

    return reply


def test_a_programs_failure_is_an_ordinary_exception_and_on_record(server, adapter):
    server.replies["make_reflective_dataset"] = raising(ProgramFailed("the program raised KeyError", stage="run"))
    batch = traced(adapter)
    with pytest.raises(ProgramFailed):
        adapter.make_reflective_dataset(SEED, batch, ["system"])
    assert str(adapter.failures.first) == "make_reflective_dataset: ProgramFailed: the program raised KeyError"


@pytest.mark.parametrize(("error", "status"), [(InvalidParams(), "failed"), (Overloaded(retry_after_s=0), "paused")])
def test_any_other_failure_interrupts_since_gepa_would_swallow_it(server, adapter, error, status):
    server.replies["make_reflective_dataset"] = raising(error)
    with pytest.raises(Interrupted) as caught:
        gepa.optimize(
            seed_candidate=adapter.seed_candidate,
            adapter=adapter,
            trainset=ROWS,
            reflection_strategy=ProgramReflection(adapter),
            max_metric_calls=100,
            skip_perfect_score=False,
            logger=Silent(),
        )
    assert caught.value.status == status


def states(server):
    """Let the program keep a list of how often it made a dataset."""
    kept = []

    def reply(params):
        if "adapter_state" in params:
            kept[:] = params["adapter_state"]
        kept.append(len(kept))
        return {"dataset": {}, "adapter_state": list(kept)}

    server.replies["make_reflective_dataset"] = reply
    return kept


def test_state_comes_back_with_the_records_and_is_not_sent_to_the_instance_that_made_it(server, adapter):
    kept = states(server)
    assert adapter.get_adapter_state() == {}
    for _ in range(3):
        adapter.make_reflective_dataset(SEED, traced(adapter), ["system"])
    assert kept == [0, 1, 2]
    assert adapter.get_adapter_state() == {"adapter_state": [0, 1, 2]}
    assert all("adapter_state" not in params for params in server.called("make_reflective_dataset"))


def test_state_follows_to_another_instance(server, adapter):
    kept = states(server)
    adapter.make_reflective_dataset(SEED, traced(adapter), ["system"])
    kept.clear()
    server.forget("second")
    adapter.make_reflective_dataset(SEED, traced(adapter), ["system"])
    assert kept == [0, 1]
    assert server.called("make_reflective_dataset")[-1]["adapter_state"] == [0]


def test_a_checkpoints_state_is_restored_in_another_process(server, adapter):
    kept = states(server)
    adapter.set_adapter_state({"adapter_state": [5, 6]})
    assert adapter.get_adapter_state() == {"adapter_state": [5, 6]}
    adapter.make_reflective_dataset(SEED, traced(adapter), ["system"])
    assert kept == [5, 6, 2]


def test_a_program_of_whole_batches_gets_a_restored_state_at_once_even_an_empty_one(server):
    server.capabilities.append("adapter_state")
    server.limits["whole_batches"] = True
    kept = states(server)
    with RemoteAdapter(server.url) as adapter:
        adapter.set_adapter_state({})
        adapter.set_adapter_state({"adapter_state": [5, 6]})
        assert adapter.get_adapter_state() == {"adapter_state": [5, 6, 2]}  # its state afterwards
    assert kept == [5, 6, 2]
    sent = server.called("make_reflective_dataset")
    assert [params["adapter_state"] for params in sent] == [{}, [5, 6]]
    assert all(params["components_to_update"] == [] == params["eval_batch"]["batch"] for params in sent)


def test_without_the_capability_state_is_neither_kept_nor_silently_dropped(server):
    states(server)
    with RemoteAdapter(server.url) as adapter:
        adapter.set_adapter_state({})
        adapter.make_reflective_dataset(SEED, traced(adapter), ["system"])
        assert adapter.get_adapter_state() == {}
        with pytest.raises(ValueError, match="state"):
            adapter.set_adapter_state({"adapter_state": 1})


class Silent:
    def log(self, message):
        pass


@pytest.mark.parametrize("offered", [True, False])
def test_each_request_has_a_seed_of_its_own_made_from_the_runs_where_steps_are_offered(server, offered):
    server.capabilities = ["refs", "idempotency", *(["steps"] if offered else [])]
    seeds = []
    for seed in (0, 0, 7):
        with RemoteAdapter(server.url, seed=seed) as adapter:
            for count in (1, 2):
                batch = traced(adapter, ROWS[:count])
                adapter.make_reflective_dataset(SEED, batch, ["system"])
        seeds.append([params.get("seed") for params in server.called("make_reflective_dataset")[-2:]])
    first, again, other = seeds
    assert first == again
    if not offered:
        assert first == other == [None, None]
    else:
        assert first[0] != first[1]
        assert other == [seed + 7 for seed in first]


@pytest.mark.parametrize(
    ("usage", "spent"),
    [
        ({"cost_usd": 0.25}, (0.25, 0)),
        ({"models": {"gpt-4o-mini": {"calls": 1, "input_tokens": 10**6, "output_tokens": 0}}}, (0.15, 0)),
        ({"calls": 2}, (0.0, 1)),
        (None, (0.0, 0)),
    ],
)
def test_models_called_for_records_and_texts_count_in_what_the_run_spent(server, usage, spent):
    server.capabilities.append("proposals")
    paid = {} if usage is None else {"usage": usage}
    server.replies["make_reflective_dataset"] = lambda _: {"dataset": {"system": [{"Feedback": "f"}]}, **paid}
    server.replies["propose_new_texts"] = lambda _: {"texts": {"system": "better"}, **paid}
    with RemoteAdapter(server.url) as adapter:
        records = adapter.make_reflective_dataset(SEED, traced(adapter), ["system"])
        assert adapter.propose([(SEED, records, ["system"])]) == [{"system": "better"}]
        for kind in ("reflective_dataset", "proposal"):
            tally = adapter.journal.spending[kind]
            assert (tally.cost_usd, tally.unpriced) == (pytest.approx(spent[0]), spent[1])
