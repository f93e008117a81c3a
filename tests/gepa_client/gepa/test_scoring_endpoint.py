"""Programs that return rollouts, and another endpoint that scores them."""

import asyncio
from collections import Counter

import pytest

from gepa_client import Interrupted, RemoteAdapter
from gepa_client.errors import BadResponse, Refused
from gepa_client.journal.entries import SEARCH
from tests.gepa_client.journal.sample_runs import RUN
from tests.gepa_client.journal.stored_journals import recording
from tests.gepa_client.scripted_server import AtOnce, ScriptedServer, failed, ok, rows

SEED = {"system": "s", "style": "t"}


@pytest.fixture
def scorer(host):
    made = ScriptedServer()
    made.capabilities, made.rows, made.instance_id = ["scoring", "idempotency"], {}, "scorer"
    made.scored = Counter()
    made.judge = lambda _, result: ok(result["output"] / 10, feedback="seen")

    async def score(params):
        results = []
        for example, result in zip(params["batch"], params["results"], strict=True):
            made.scored[example["id"]] += 1
            results.append(made.judge(example, result))
        return {"results": results}

    made.replies["score"] = score
    made.url = host.serve(made.handle)
    return made


@pytest.fixture
def program(server):
    server.evaluate_one = lambda _, example, __: {
        "status": "rollout",
        "score": None,
        "output": example.data["n"],
        "seconds": 0.25,
        "usage": {"cost_usd": 0.5},
    }
    return server


def test_scores_and_feedback_come_from_there_and_everything_else_from_the_program(program, scorer):
    for each in (program, scorer):
        each.capabilities = [*each.capabilities, "example_timeout"]
    fails = failed(message="no verdict")
    scoring = {"feedback": "seen", "objective_scores": {"short": 0.5}}
    scorer.judge = lambda _, result: fails if result["output"] == 4 else ok(result["output"] / 10, **scoring)
    with RemoteAdapter(program.url, score_with=scorer.url, example_timeout_s=7) as adapter:
        batch = adapter.evaluate(rows(5), SEED, capture_traces=True)
        adapter.make_reflective_dataset(SEED, batch, ["system"])
        assert adapter.journal.spending["score"].calls == 5
    assert batch.scores == [0.0, 0.1, 0.2, 0.3, 0.0]
    assert batch.outputs == [0, 1, 2, 3, 4]
    made = [*program.called("evaluate"), *scorer.called("score")]
    assert [params["_meta"]["example_timeout_s"] for params in made] == [7] * 10
    [sent] = program.called("make_reflective_dataset")
    first, *_, last = sent["eval_batch"]["results"]
    assert first.pop("trajectory_ref").startswith("first/")
    run = {"output": 0, "seconds": 0.251, "usage": {"cost_usd": 0.5}}
    assert first == {**run, "status": "ok", "score": 0.0, **scoring}
    assert (last["status"], last["error"], last["output"]) == ("program_error", fails["error"], 4)
    given = [result for params in scorer.called("score") for result in params["results"]]
    assert all({"trajectory_ref", "usage"}.isdisjoint(result) for result in given)


def test_examples_that_are_scored_count_as_in_flight(program, scorer):
    program.limits["max_concurrency"] = scorer.limits["max_concurrency"] = 8
    at_once = AtOnce()
    scorer.replies["score"] = at_once(scorer.replies["score"])
    with RemoteAdapter(program.url, score_with=scorer.url, concurrency=1) as adapter:
        adapter.evaluate(rows(4), SEED)
    assert at_once.most == 1


def test_a_scorer_of_other_rows_or_that_scores_nothing_is_refused(program, scorer, tmp_path):
    (tmp_path / "token").write_text("of the scorer")
    line = f"{scorer.url} token-file={tmp_path / 'token'}"
    scorer.token = "of the scorer"
    discovery = asyncio.run(scorer.discover({}))
    scorer.replies["discover"] = lambda _: {**discovery, "datasets": {"val": {"size": 5, "digest": "other"}}}
    with pytest.raises(Refused, match="holds other rows as 'val'"):
        RemoteAdapter(program.url, score_with=line, token=program.token)
    del scorer.replies["discover"]
    scorer.judge = lambda _, result: result
    with RemoteAdapter(program.url, score_with=line) as adapter, pytest.raises(BadResponse, match="`rollout` again"):
        adapter.evaluate(rows(1), SEED)
    scorer.capabilities.remove("scoring")
    with pytest.raises(Refused, match="does not offer `score`"):
        RemoteAdapter(program.url, score_with=line)


def test_a_program_that_failed_is_not_scored_and_one_that_scores_itself_neither(program, scorer):
    rollout = program.evaluate_one
    program.evaluate_one = lambda candidate, example, traced: (
        [failed(), ok(0.75)][example.data["n"]] if example.data["n"] < 2 else rollout(candidate, example, traced)
    )
    with RemoteAdapter(program.url, score_with=scorer.url) as adapter:
        assert adapter.evaluate(rows(3), SEED).scores == [0.0, 0.75, 0.2]
    assert dict(scorer.scored) == {"2": 1}


def test_rollouts_that_wait_for_a_scorer_that_is_away_are_not_paid_for_twice(program, scorer, store):
    program.limits["max_concurrency"] = 4
    judge = scorer.judge
    waited = []

    async def away(params):
        [example] = params["batch"]
        if int(example["id"]) >= 3:
            waited.append(example["id"])
            await asyncio.sleep(0.2)
            return {"results": [failed("infra_error", "APIConnectionError", "the judge is away")]}
        return {"results": [judge(example, params["results"][0])]}

    answers = scorer.replies["score"]
    scorer.replies["score"] = away
    options = {"score_with": scorer.url, "first_backoff_s": 0.001, "max_attempts": 1}
    with (
        recording(store) as journal,
        RemoteAdapter(program.url, journal=journal, **options) as adapter,
        pytest.raises(Interrupted, match="the judge is away"),
    ):
        adapter.evaluate(rows(40), SEED)
    scorer.replies["score"] = answers
    with recording(store) as journal, RemoteAdapter(program.url, journal=journal, **options) as adapter:
        assert adapter.evaluate(rows(40), SEED).scores == [number / 10 for number in range(40)]
    assert len(store.entries(RUN.id, SEARCH)) == 40
    assert all(program.runs[row] == 1 for row in waited)
    assert program.runs.total() <= 40 + 4  # at most those that were in flight run again


def test_a_scorer_that_reads_trajectories_gets_them_inline_and_gives_feedback_by_component(program, scorer):
    steps = {"steps": [{"component": "system", "inputs": {}, "outputs": "x"}]}
    run = program.evaluate_one
    program.evaluate_one = lambda *given: {**run(*given), "trajectory": steps}
    scorer.capabilities = [*scorer.capabilities, "score_trajectories"]
    scorer.judge = lambda _, result: ok(len(result["trajectory"]["steps"]), component_feedback={"system": "too long"})
    with RemoteAdapter(program.url, score_with=scorer.url) as adapter:
        batch = adapter.evaluate(rows(2), SEED)
        adapter.make_reflective_dataset(SEED, adapter.evaluate(rows(2), SEED, capture_traces=True), ["system"])
    assert batch.scores == [1.0, 1.0]
    assert all("_meta" not in params or "group" not in params["_meta"] for params in program.called("evaluate"))
    assert all("usage" not in result for params in scorer.called("score") for result in params["results"])
    [sent] = program.called("make_reflective_dataset")
    for result in sent["eval_batch"]["results"]:
        assert result["trajectory"] == steps
        assert result["component_feedback"] == {"system": "too long"}
