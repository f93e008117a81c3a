"""Programs of several components: steps, feedback and records by component, and scorers that read trajectories."""

import random
from typing import Any

import pytest

from rpc_server.worker.reflective_records import default_dataset

SEEN = {"question": "q"}


def _without_seconds(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            name: _without_seconds(value) if name == "steps" else value
            for name, value in step.items()
            if name != "seconds"
        }
        for step in steps
    ]


async def _records(running: Any, *rows: Any, components: list[str], **params: Any) -> dict[str, list[dict[str, Any]]]:
    """The default records of traced rows."""
    results = await running.evaluate(*rows, capture_traces=True)
    batch = [{"id": str(at), "data": row} for at, row in enumerate(rows)]
    made = await running.program.call(
        "make_reflective_dataset",
        {
            "candidate": running.program.info.seed_candidate,
            "eval_batch": {"batch": batch, "results": results},
            "components_to_update": components,
            **params,
        },
    )
    return made["dataset"]


async def test_steps_hold_inputs_outputs_usage_and_what_ran_within_them(opened):
    async with opened("parts.py") as running:
        assert "steps" in running.program.capabilities
        assert "score_trajectories" not in running.program.capabilities
        result = await running.one(SEEN, capture_traces=True)
    assert result["trajectory"]["trace"] == ["done"]
    checks = [
        {"component": "checker", "inputs": {"answer": "PLAN FOR Q", "attempt": at}, "outputs": {"ok": True}}
        for at in range(3)
    ]
    assert _without_seconds(result["trajectory"]["steps"]) == [
        {"component": "planner", "inputs": {"question": "q"}, "outputs": "plan for q"},
        {
            "component": "solver",
            "inputs": {"plan": "plan for q"},
            "outputs": {"answer": "PLAN FOR Q"},
            "usage": {"calls": 1},
            "steps": [{"name": "search", "inputs": {"query": "plan for q"}, "outputs": ["found"]}],
        },
        *checks,
    ]
    assert all(0 <= step["seconds"] < 20 for step in result["trajectory"]["steps"])


async def test_without_traces_asked_for_no_step_is_sent(opened):
    async with opened("parts.py") as running:
        assert "trajectory" not in await running.one(SEEN)


async def test_a_failed_step_names_its_error_and_a_parse_failure_the_answer_and_the_structure(opened):
    async with opened("parts.py") as running:
        failed, unparsed, whole = await running.evaluate(
            {**SEEN, "do": "error"}, {**SEEN, "do": "parse failure"}, {"do": "unparsed"}, capture_traces=True
        )
    assert failed["status"] == "program_error"
    assert failed["trajectory"]["steps"][-1]["error"] == {"type": "ValueError", "message": "no luck"}
    assert unparsed["status"] == "ok"
    [step] = [step for step in unparsed["trajectory"]["steps"] if "error" in step]
    assert step["error"] == {"type": "parse_failure", "message": "not a JSON object"}
    assert (step["raw"], step["expected"]) == ("no JSON", '{"ok": true}')
    assert (whole["status"], whole["error"]["type"]) == ("program_error", "parse_failure")


async def test_async_steps_nest_in_their_own_task_and_stand_in_the_order_in_which_they_started(opened):
    async with opened("parts_async.py") as running:
        result = await running.one({}, capture_traces=True)
    assert _without_seconds(result["trajectory"]["steps"]) == [
        {
            "component": "outer",
            "inputs": {"numbers": [1, 2]},
            "outputs": [1, 2],
            "steps": [{"component": "inner", "inputs": {"number": at}, "outputs": at} for at in (1, 2)],
        }
    ]


async def test_a_scorer_with_a_third_parameter_reads_the_trajectory_wanted_by_the_caller_or_not(opened):
    async with opened("parts_async.py") as running:
        assert {"scoring", "score_trajectories"} <= running.program.capabilities
        result = await running.one({})
        assert (result["score"], "trajectory" in result) == (2.0, False)


@pytest.mark.parametrize(
    ("row", "logged"),
    [
        ({"do": "misspelt"}, "did you mean 'planner'?"),
        ({**SEEN, "component_feedback": {"solvr": "x"}}, "did you mean 'solver'?"),
        ({"do": "misspelt", "component_feedback": {"checker": "x"}}, "'checker', which ran no step"),
        ({**SEEN, "component_feedback": {"solver": {"feedback": "x", "score": 0.25}}}, "another score for 'solver'"),
    ],
    ids=["a step's component", "feedback's component", "feedback without a step", "a score of its own"],
)
async def test_a_mistake_in_a_name_is_reported_once_on_the_log_and_loses_nothing(opened, row, logged):
    async with opened("parts.py", workers=1) as running:
        result = await running.one(row, capture_traces=True)
        again = await running.one(row, capture_traces=True)
    assert result["status"] == "ok"
    assert result["trajectory"]["steps"]
    assert result.get("component_feedback", {}).keys() == row.get("component_feedback", {}).keys()
    assert logged in result["log"]
    assert "log" not in again


async def test_feedback_that_is_no_text_fails_its_example(opened):
    async with opened("parts.py") as running:
        result = await running.one({**SEEN, "component_feedback": {"solver": 3}})
    assert result["error"] == {
        "type": "invalid_result",
        "message": 'component_feedback.solver is a int; it must be text, or {"feedback": text, "score": number}',
    }


async def test_steps_that_are_unfinished_many_deep_or_not_json_are_all_recorded(opened):
    async with opened("parts.py") as running:
        unfinished, many, deep, odd = await running.evaluate(
            *({"do": wanted} for wanted in ("unfinished", "many", "deep", "not json")), capture_traces=True
        )
    assert unfinished["trajectory"]["steps"][0]["error"]["type"] == "unfinished"
    assert [step["outputs"] for step in many["trajectory"]["steps"]] == list(range(10_000))
    assert str(deep["trajectory"]).count("'component'") == 150
    [step] = odd["trajectory"]["steps"]
    assert step["inputs"]["numbers"] == {"type": "set", "repr": "{1, 2}"}
    assert step["inputs"]["cycle"]["type"] == "list"
    assert step["outputs"]["type"] == "type"
    assert [each["status"] for each in (unfinished, many, deep, odd)] == ["ok"] * 4


async def test_a_step_keeps_its_values_as_they_were(opened):
    async with opened("parts.py") as running:
        result = await running.one({"do": "changed"}, capture_traces=True)
    [step] = result["trajectory"]["steps"]
    hello = {"role": "user", "content": "hello"}
    assert (step["inputs"], step["outputs"]) == ({"messages": [hello]}, [hello])


async def test_a_trace_used_after_its_example_records_nothing_and_is_reported(opened):
    async with opened("parts.py", workers=1) as running:
        await running.one({"do": "late"}, capture_traces=True)
        result = await running.one({"do": "use of a kept trace"}, capture_traces=True)
    assert result["trajectory"] == []
    assert "a step was started after its example had ended" in result["log"]


async def test_a_step_in_a_thread_of_its_own_stands_beside_the_step_that_started_it(opened):
    async with opened("parts.py") as running:
        result = await running.one({"do": "thread"}, capture_traces=True)
    assert [step["component"] for step in result["trajectory"]["steps"]] == ["planner", "solver"]


async def test_each_component_has_the_records_of_its_own_steps(opened):
    rows = [SEEN, {**SEEN, "do": "parse failure", "component_feedback": {"planner": "plan better"}}, {"do": "nothing"}]
    async with opened("parts.py") as running:
        made = await _records(running, *rows, components=["planner", "checker", "solver"], seed=3)
    rng = random.Random(3)
    for _ in range(2):
        rng.choice([0])  # one step of the planner in each example
    whole = {"Inputs": {"do": "nothing"}, "Generated Outputs": "nothing", "Feedback": "so so", "Trace": []}
    plan = {"Inputs": {"question": "q"}, "Generated Outputs": "plan for q"}
    assert made["planner"] == [{**plan, "Feedback": "so so"}, {**plan, "Feedback": "plan better"}, whole]
    assert made["checker"] == [
        {
            "Inputs": {"answer": "PLAN FOR Q", "attempt": rng.choice(range(3))},
            "Generated Outputs": {"ok": True},
            "Feedback": "so so",
        },
        {
            "Inputs": {"answer": "PLAN FOR Q", "attempt": 1},
            "Generated Outputs": "Couldn't parse the output as per the expected output format. "
            "The model's raw response was:\n```\nno JSON\n```\n\n",
            "Feedback": 'Your output failed to parse. Follow this structure:\n{"ok": true}',
        },
        whole,
    ]
    assert [record["Generated Outputs"] for record in made["solver"]] == [{"answer": "PLAN FOR Q"}] * 2 + ["nothing"]


async def test_feedback_on_a_component_is_in_the_records_of_examples_without_steps(opened):
    async with opened("parts.py") as running:
        made = await _records(
            running,
            {"do": "nothing", "component_feedback": {"planner": "plan better"}},
            {"do": "nothing"},
            components=["planner", "checker"],
        )
    feedback = {name: [record["Feedback"] for record in records] for name, records in made.items()}
    assert feedback == {"planner": ["plan better", "so so"], "checker": ["so so", "so so"]}


async def test_the_error_of_a_step_precedes_the_feedback_on_the_example(opened):
    async with opened("parts.py") as running:
        made = await _records(running, {**SEEN, "do": "error"}, components=["solver", "planner"])
    assert made["solver"][0]["Inputs"] == {"plan": "again"}
    assert made["solver"][0]["Feedback"].startswith("This step failed: ValueError: no luck\nThe program failed: Value")
    assert made["planner"][0]["Feedback"].startswith("The program failed: ValueError: no luck")


async def test_a_chat_history_is_the_context_and_an_image_a_reference(opened):
    image = "data:image/png;base64,iVBORw0KGgo="
    steps = [{"component": "planner", "inputs": {"question": image, "messages": [{"role": "user", "content": "hé"}]}}]
    result = {"status": "ok", "score": 1, "output": "", "seconds": 0, "trajectory": {"steps": [*steps, "no step"]}}
    async with opened("parts.py") as running:
        made = await running.program.call(
            "make_reflective_dataset",
            {
                "candidate": running.program.info.seed_candidate,
                "eval_batch": {"batch": [{"id": "a", "data": {}}], "results": [result]},
                "components_to_update": ["planner", "solver"],
            },
        )
    [(name, content)] = made["images"].items()
    assert content == {"media_type": "image/png", "base64": "iVBORw0KGgo="}
    assert made["dataset"] == {
        "planner": [
            {
                "Inputs": {
                    "Context": '```json\n  0: {"role":"user","content":"hé"}\n```',
                    "question": {"$image": name},
                },
                "Generated Outputs": "",
                "Feedback": "Score: 1",
            }
        ],
        "solver": [],
    }
    assert list(made["dataset"]["planner"][0]["Inputs"]) == ["Context", "question"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("data:image/png;base64,no base64!", "data:image/png;base64,no base64!"),
        ("data:image/png;base64,iVBORw0", "data:image/png;base64,iVBORw0"),
        (
            "data:image/png;base64," + "A" * 7_000_000,
            {"type": "image/png", "repr": "an image of 7000000 characters in base64"},
        ),
    ],
    ids=["no base64", "cut off", "too large"],
)
def test_a_data_url_that_cannot_be_carried_as_an_image_is_none(text, shown):
    steps = [{"component": "planner", "inputs": {"picture": text}, "outputs": None}]
    result = {"status": "ok", "score": 1, "output": "", "seconds": 0, "trajectory": {"steps": steps}}
    dataset, images = default_dataset([{"id": "a", "data": {}}], [result], ["planner"], traced=True, seed=0)
    assert dataset["planner"][0]["Inputs"] == {"picture": shown}
    assert images == {}


@pytest.mark.parametrize("parameters", ["example, output, strict=True", "example, output, **options"])
async def test_a_third_parameter_of_score_that_is_optional_gets_no_trajectory(opened, tmp_path, parameters):
    (tmp_path / "optional.py").write_text(
        "seed_candidate = {'prompt': 'x'}\n"
        "def run(example, candidate):\n    return 1\n"
        f"def score({parameters}):\n    return 1.0 if locals().get('strict') in (None, True) else 0.0\n"
    )
    async with opened("optional.py", root=tmp_path) as running:
        assert "score_trajectories" not in running.program.capabilities
        assert (await running.one({}))["score"] == 1.0
