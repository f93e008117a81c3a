"""Spans of an example become steps of its trajectory, for each convention and each set-up of OpenTelemetry."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

PLAN = {"role": "system", "content": "Plan the trip in days."}
ASKED = {"role": "user", "content": "Rome?"}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"name": "search", "arguments": {"city": "Rome"}}]}
COUNTED = {"calls": 1, "input_tokens": 7, "output_tokens": 3}
USAGE = {**COUNTED, "models": {"m": COUNTED}}
REPLAYED = json.loads((Path(__file__).parent / "data" / "spans.json").read_text())
"""Spans with the steps that both languages make of them."""


async def steps_of(running: Any, wanted: str) -> list[dict[str, Any]]:
    result = await running.one({"do": wanted}, capture_traces=True)
    assert result["status"] == "ok", result
    return result["trajectory"]["steps"]


def shape(steps: list[dict[str, Any]]) -> list[Any]:
    """The component or name of each step, with those within it."""
    return [
        (each.get("component") or each["name"], shape(each["steps"]))
        if "steps" in each
        else each.get("component") or each["name"]
        for each in steps
    ]


def without_seconds(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            name: without_seconds(value) if name == "steps" else value
            for name, value in step.items()
            if name != "seconds"
        }
        for step in steps
    ]


async def test_spans_of_each_convention_are_the_steps_that_typescript_makes_of_them(opened):
    async with opened("replayed_spans.py", workers=1) as running:
        results = await running.evaluate(*REPLAYED, capture_traces=True)
    for case, result in zip(REPLAYED, results, strict=True):
        assert without_seconds(result["trajectory"]["steps"]) == case["steps"], case["name"]


async def test_spans_of_the_genai_convention_are_steps(opened):
    async with opened("traced.py") as running:
        result = await running.one({"do": "genai"}, capture_traces=True)
        [planned, called, tool] = result["trajectory"]["steps"]
    assert all(0 <= step.pop("seconds") < 20 for step in (planned, called, tool))
    system = {"role": "system", "content": "You. Plan the trip in days. Now."}
    assert planned == {
        "component": "planner",
        "inputs": {"messages": [system, ASKED], "model": "m"},
        "outputs": "Two days.",
        "usage": USAGE,
    }
    inputs = {"messages": [ASKED], "model": "m"}
    assert called == {"name": "chat m", "inputs": inputs, "outputs": [CALL], "usage": USAGE}
    assert tool == {"name": "search", "inputs": {"city": "Rome"}, "outputs": "sunny"}
    assert "ran no step" not in result.get("log", "")


async def test_messages_in_events_and_in_older_attributes_are_read(opened):
    async with opened("traced.py") as running:
        [by_events] = await steps_of(running, "events")
        [older] = await steps_of(running, "openllmetry")
    assert by_events["component"] == older["component"] == "planner"
    assert by_events["inputs"] == {"messages": [PLAN, ASKED], "model": "m"}
    assert by_events["outputs"] == older["outputs"] == "Two days."
    cities = [{"role": "user", "content": f"city {number}"} for number in range(1, 12)]
    assert older["inputs"] == {"messages": [PLAN, *cities], "model": "m"}
    assert (by_events["usage"], older["usage"]) == ({"calls": 1, "models": {"m": {"calls": 1}}}, USAGE)


async def test_spans_of_openinference_are_steps(opened):
    async with opened("traced.py") as running:
        [model, tool] = await steps_of(running, "openinference")  # and none of the chain, which is of no component
    assert (model["component"], model["inputs"], model["usage"]) == (
        "planner",
        {"messages": [PLAN], "model": "m"},
        USAGE,
    )
    assert model["outputs"] == [{**CALL, "tool_calls": [{"name": "search", "arguments": {"a": 1}}]}]
    assert (tool["name"], tool["inputs"], tool["outputs"]) == ("search", {"input": "5"}, {"found": 1})


async def test_a_component_is_recognised_by_attribute_name_agent_and_the_longest_text(opened):
    async with opened("traced.py", workers=1) as running:
        result = await running.one({"do": "components"}, capture_traces=True)
    assert [step.get("component") for step in result["trajectory"]["steps"]] == [
        *("checker", "solver", "solver", "planner"),
        *(None, "planer"),
    ]
    assert "did you mean 'planner'?" in result["log"]
    assert result["trajectory"]["steps"][-1]["usage"] == {"calls": 1, "models": {"m": {"calls": 1}}}  # unknown, not 0


async def test_steps_of_spans_and_of_the_program_stand_within_each_other_and_none_is_there_twice(opened):
    async with opened("traced.py") as running:
        steps = await steps_of(running, "nested")
    assert shape(steps) == [("planner", [("agent", [("lookup", ["inner"])]), "of the model"]), "solver"]
    assert (steps[0]["inputs"], steps[0]["outputs"]) == ({"question": "Rome?"}, "own")
    assert (steps[1]["inputs"], steps[1]["outputs"]) == ({"messages": [ASKED], "model": "m"}, "last")


async def test_the_error_of_a_span_is_that_of_its_step(opened):
    async with opened("traced.py") as running:
        steps = await steps_of(running, "failed")
    assert [step["error"] for step in steps] == [
        {"type": "ValueError", "message": "no luck"},
        {"type": "error", "message": "overloaded"},
    ]


async def test_spans_of_threads_belong_to_the_only_open_example(opened):
    async with opened("traced.py") as running:
        assert shape(await steps_of(running, "threads")) == [("starts threads", ["lone"]), "lone"]


async def test_spans_of_tasks_nest_in_their_own(opened):
    async with opened("traced.py") as running:
        assert shape(await steps_of(running, "concurrent")) == [("a", ["within a"]), ("b", ["within b"])]


async def test_spans_of_examples_at_the_same_time_are_not_mixed(opened):
    names = [f"example {number}" for number in range(5)]
    async with opened("traced_async.py", workers=1, max_concurrency=8) as running:
        results = await running.evaluate(*({"name": name} for name in names), capture_traces=True)
    assert [shape(result["trajectory"]["steps"]) for result in results] == [
        [(name, ["within " + name])] for name in names
    ]


async def test_a_span_that_never_ends_is_an_unfinished_step(opened):
    async with opened("traced.py") as running:
        [step] = await steps_of(running, "unfinished")
    assert (step["name"], step["error"]["type"], "seconds" in step) == ("left", "unfinished", False)


async def test_spans_whose_attributes_make_no_sense_are_steps(opened):
    async with opened("traced.py") as running:
        assert shape(await steps_of(running, "odd")) == ["chat m", "deep"]


async def test_random_numbers_of_the_program_are_the_same_with_spans(opened):
    async with opened("traced.py") as running:
        assert (await running.one({"do": "drawn"}))["output"] == random.Random(1).random()  # of a seed


async def test_components_have_the_records_of_their_spans_or_of_the_example_if_no_span_is_of_one(opened):
    async with opened("traced.py", workers=1) as running:
        batch = [{"id": each, "data": {"do": each}} for each in ("genai", "exported")]
        results = await running.evaluate(*(row["data"] for row in batch), capture_traces=True)
        candidate, components = running.program.info.seed_candidate, ["planner", "solver"]
        params = {"candidate": candidate, "components_to_update": components}
        given = {"batch": batch, "results": results}
        made = await running.program.call("make_reflective_dataset", {**params, "eval_batch": given})
    whole = {"Inputs": {"do": "exported"}, "Generated Outputs": "exported", "Feedback": "Score: 1.0"}
    [record, of_example] = made["dataset"]["planner"]
    assert (record["Generated Outputs"], record["Feedback"]) == ("Two days.", "well done")
    assert list(record["Inputs"]) == ["Context", "model"]
    assert {name: of_example[name] for name in whole} == whole
    assert made["dataset"]["solver"] == [of_example]
    assert "the span 'chat m' of a model call is of no component" in results[0]["log"]


async def test_without_traces_asked_for_no_step_is_recorded(opened):
    async with opened("traced.py") as running:
        result = await running.one({"do": "genai"})
    assert not {"trajectory", "log"} & result.keys()  # reading the spans would report one of no component


@pytest.mark.parametrize("setup", ["none", "own"])
async def test_spans_that_nothing_reads_are_not_recorded_unless_the_program_has_a_provider(opened, setup):
    async with opened("traced.py", env={"SETUP": setup}, workers=1) as running:
        for is_traced in (True, False):
            result = await running.one({"do": "recording"}, capture_traces=is_traced)
            assert result["output"] == str(is_traced or setup == "own")


@pytest.mark.parametrize("setup", ["own", "throws"])
async def test_the_programs_own_exporter_gets_all_spans_as_well(opened, setup):
    async with opened("traced.py", env={"SETUP": setup}, workers=1) as running:
        result = await running.one({"do": "exported"}, capture_traces=True)
    assert result["status"] == "ok", result
    assert result["output"] == ["chat m"]
    assert [step["outputs"] for step in result["trajectory"]["steps"]] == ["Two days."]
    assert ("a span processor of the program raised RuntimeError: no start" in result.get("log", "")) is (
        setup == "throws"
    )


async def test_a_provider_that_the_program_sets_while_an_example_runs_is_used_from_the_next_one_on(opened):
    async with opened("traced.py", env={"SETUP": "late"}, workers=1) as running:
        await running.one({"do": "late"}, capture_traces=True)
        result = await running.one({"do": "late"}, capture_traces=True)
    assert result["output"] == ["chat m", "judge", "chat m"]
    assert shape(result["trajectory"]["steps"]) == ["chat m"]


async def test_opentelemetry_is_not_imported_for_a_program_that_does_not(opened, tmp_path):
    (tmp_path / "bare.py").write_text(
        "import sys\nseed_candidate = {'a': 'text'}\n"
        "def run(example, candidate):\n    return [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    async with opened("bare.py", root=tmp_path) as running:
        assert (await running.one({}))["output"] == []
