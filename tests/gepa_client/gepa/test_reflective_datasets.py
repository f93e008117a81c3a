import gepa
import pytest

from gepa_client import Interrupted, ProgramReflection, RemoteAdapter, Row
from gepa_client.gepa.rows import ServerRow
from gepa_client.journal.entries import RETRACE
from protocol.errors import InvalidParams, LimitExceeded, MethodNotFound, Overloaded, TrajectoryExpired
from tests.gepa_client.journal.stored_journals import recording

SEED = {"system": "s", "style": "t"}
ROWS = [Row(str(number), {"n": number}) for number in range(3)]


@pytest.fixture
def adapter(server):
    server.capabilities.append("adapter_state")
    with RemoteAdapter(server.url, first_backoff_s=0.001, max_outage_s=0.3) as made:
        yield made


def traced(adapter, rows=ROWS):
    return adapter.evaluate(rows, SEED, capture_traces=True)


def test_trajectories_travel_inline_if_the_server_keeps_none(server):
    server.capabilities.remove("refs")
    with RemoteAdapter(server.url) as adapter:
        adapter.make_reflective_dataset(SEED, traced(adapter), ["system"])
    [sent] = server.called("make_reflective_dataset")
    assert [result["trajectory"] for result in sent["eval_batch"]["results"]] == [{"of": row.id} for row in ROWS]
    assert all("group" not in params["_meta"] for params in server.called("evaluate"))


def test_expired_trajectories_are_traced_once_more_while_the_scores_stand(server, adapter):
    server.evaluate_one = lambda _, example, __: server.ok(1.0 / server.runs[example.id])
    batch = traced(adapter)
    server.forget("second")
    dataset = adapter.make_reflective_dataset(SEED, batch, ["system"])
    assert [record["Feedback"] for record in dataset["system"]] == ["0.5"] * 3
    assert batch.scores == [1.0] * 3
    assert (adapter.journal.spending[RETRACE].examples, adapter.tally.examples) == (3, 3)
    assert adapter.fleet.clients[0].instance_id == "second"


def raising(error):
    def reply(params):
        raise error

    return reply


@pytest.mark.parametrize(
    ("error", "status"),
    [(InvalidParams(), "failed"), (Overloaded(retry_after_s=0), "paused"), (TrajectoryExpired(refs=["x"]), "paused")],
)
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
        )
    assert caught.value.status == status
    assert adapter.journal.spending[RETRACE].examples <= len(ROWS)


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


def test_state_follows_to_another_instance(server, adapter):
    kept = states(server)
    adapter.make_reflective_dataset(SEED, traced(adapter), ["system"])
    kept.clear()
    server.forget("second")
    adapter.make_reflective_dataset(SEED, traced(adapter), ["system"])
    assert kept == [0, 1]
    assert server.called("make_reflective_dataset")[-1]["adapter_state"] == [0]


@pytest.mark.parametrize("forked", [False, True])
def test_state_of_the_run_that_a_run_was_forked_from_is_sent_to_the_instance_that_made_it(server, store, forked):
    server.capabilities.append("adapter_state")
    kept = states(server)
    for calls in (1, 2):
        with recording(store) as journal, RemoteAdapter(server.url, journal=journal) as adapter:
            journal.inherited = 4 * forked
            for _ in range(calls):
                adapter.make_reflective_dataset(SEED, traced(adapter), ["system"])
        kept.append("of the other run")  # which has continued meanwhile
    assert adapter.get_adapter_state() == {"adapter_state": [0, 1] if forked else [0, "of the other run", 2]}


@pytest.mark.parametrize("kept", [True, False])
def test_records_are_made_here_of_the_traces_of_a_program_that_makes_none(server, kept):
    server.makes_records = False
    server.capabilities = ["idempotency", *(["refs"] if kept else [])]
    with RemoteAdapter(server.url, first_backoff_s=0.001) as adapter:
        batch = traced(adapter)
        server.forget("second")  # a server without refs has kept nothing
        dataset = adapter.make_reflective_dataset(SEED, batch, ["system"])
        assert [(each["Inputs"], each["Trace"]) for each in dataset["system"]] == [
            (row.data, {"of": row.id}) for row in ROWS
        ]
        assert adapter.journal.spending[RETRACE].examples == 3 * kept
    assert len(server.called("get_traces")) == 2 * kept
    assert server.called("make_reflective_dataset") == []


@pytest.mark.parametrize(
    ("error", "calls", "retraced"),
    [
        (LimitExceeded(limit="answer_bytes", allowed=1, given=3), [3, 1, 1, 1], 0),
        (MethodNotFound(method="get_traces"), [3, 3], 3),  # of another server, which keeps no traces
    ],
)
def test_traces_that_cannot_be_had_at_once_are_fetched_one_by_one_or_made_again(server, error, calls, retraced):
    server.makes_records = False
    server.capabilities = ["idempotency", "refs"]

    def reply(params):
        if len(server.called("get_traces")) == 1:
            raise error
        return {"traces": [{"trajectory": {"of": server.traces[ref][1]}} for ref in params["refs"]]}

    server.replies["get_traces"] = reply
    with RemoteAdapter(server.url, first_backoff_s=0.001) as adapter:
        dataset = adapter.make_reflective_dataset(SEED, traced(adapter), ["system"])
        assert [each["Trace"] for each in dataset["system"]] == [{"of": row.id} for row in ROWS]
        assert adapter.journal.spending[RETRACE].examples == retraced
    assert [len(params["refs"]) for params in server.called("get_traces")] == calls


def test_a_row_whose_data_stays_at_a_server_that_gives_none_of_it_has_no_record(server):
    server.makes_records = False
    server.capabilities = ["idempotency", "datasets"]
    server.datasets = {"train": [{"n": 0}]}
    with RemoteAdapter(server.url) as adapter, pytest.raises(Interrupted, match="no record can show it"):
        adapter.make_reflective_dataset(SEED, traced(adapter, [ServerRow("0", "train", None)]), ["system"])


def test_each_dataset_draws_steps_by_a_seed_of_its_own_made_from_the_runs(server):
    server.makes_records = False
    server.capabilities = ["idempotency"]
    steps = [{"component": "system", "inputs": {}, "outputs": number} for number in range(1000)]
    server.evaluate_one = lambda *_: server.ok(trajectory={"steps": steps})
    drawn = []
    for seed in (0, 0, 7):
        with RemoteAdapter(server.url, seed=seed) as adapter:
            made = [adapter.make_reflective_dataset(SEED, traced(adapter), ["system"]) for _ in range(2)]
            drawn.append([[record["Generated Outputs"] for record in each["system"]] for each in made])
    first, again, other = drawn
    assert first == again != other
    assert first[0] != first[1]


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
    server.replies["propose_new_texts"] = lambda _: {"texts": {"system": "better"}, "refused": {"style": "x"}, **paid}
    with RemoteAdapter(server.url) as adapter:
        records = adapter.make_reflective_dataset(SEED, traced(adapter), ["system"])
        assert adapter.propose([(SEED, records, ["system", "style"])]) == [{"system": "better", "style": None}]
        for kind in ("reflective_dataset", "proposal"):
            tally = adapter.journal.spending[kind]
            assert (tally.cost_usd, tally.unpriced) == (pytest.approx(spent[0]), spent[1])
