"""Programs of several components: steps, feedback and records by component, and scorers that read trajectories."""

import pytest
import pytest_asyncio

from tests.rpc_server.program.data import parts_without_trace
from tests.rpc_server.program.test_spans import without_seconds

SEEN = {"question": "q"}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(opened):
    async with opened("parts.py") as running:
        yield running


async def test_async_steps_nest_in_their_own_task_and_stand_in_the_order_in_which_they_started(opened):
    async with opened("parts_async.py") as running:
        result = await running.one({}, capture_traces=True)
    assert without_seconds(result["trajectory"]["steps"]) == [
        {
            "component": "outer",
            "inputs": {"numbers": [1, 2]},
            "outputs": [1, 2],
            "steps": [{"component": "inner", "inputs": {"number": at}, "outputs": at} for at in (1, 2)],
        }
    ]


async def test_a_program_reports_steps_and_reads_them_in_its_score_wanted_or_not_and_runs_by_itself(opened):
    async with opened("parts_without_trace.py", workers=1) as running:
        result = await running.one(SEEN, capture_traces=True)
        unwanted = await running.one(SEEN)
    assert without_seconds(result["trajectory"]["steps"]) == [
        {"component": "planner", "inputs": {"question": "q"}, "outputs": "plan for q"},
        {
            "component": "solver",
            "inputs": {"plan": "plan for q"},
            "outputs": ["found"],
            "usage": {"calls": 1},
            "steps": [{"name": "search", "inputs": {"query": "plan for q"}, "outputs": ["found"]}],
        },
        {
            "component": "solver",
            "inputs": {"attempt": 2},
            "outputs": None,
            "error": {"type": "ParseFailure", "message": "the answer could not be parsed"},
            "steps": [
                {
                    "component": "planner",
                    "inputs": {"attempt": 3},
                    "outputs": None,
                    "error": {"type": "parse_failure", "message": "the answer could not be parsed"},
                    "raw": "no answer",
                    "expected": "{}",
                }
            ],
        },
        {"component": "planner", "inputs": {}, "outputs": "of a thread"},
    ]
    assert (result["score"], unwanted["score"], "trajectory" in unwanted) == (4.0, 4.0, False)
    assert parts_without_trace.run(SEEN, parts_without_trace.seed_candidate) == result["output"]


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


async def test_feedback_that_is_no_text_fails_its_example(running):
    result = await running.one({**SEEN, "component_feedback": {"solver": 3}})
    assert result["error"] == {
        "type": "invalid_result",
        "message": 'component_feedback.solver is a int; it must be text, or {"feedback": text, "score": number}',
    }


async def test_steps_that_are_unfinished_many_deep_or_not_json_are_all_recorded(running):
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


async def test_a_step_keeps_its_values_as_they_were(running):
    result = await running.one({"do": "changed"}, capture_traces=True)
    [step] = result["trajectory"]["steps"]
    hello = {"role": "user", "content": "hello"}
    assert (step["inputs"], step["outputs"]) == ({"messages": [hello]}, [hello])


async def test_a_step_in_a_thread_of_its_own_stands_beside_the_step_that_started_it(running):
    result = await running.one({"do": "thread"}, capture_traces=True)
    assert [step["component"] for step in result["trajectory"]["steps"]] == ["planner", "solver"]
