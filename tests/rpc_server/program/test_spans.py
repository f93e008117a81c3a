"""Spans of an example become steps of its trajectory, for each convention and each set-up of OpenTelemetry."""

import json
from pathlib import Path
from typing import Any

import pytest

from gepa_client.gepa.reflective_records import customary_records

CASES = json.loads((Path(__file__).parent / "data" / "spans.json").read_text())
REPLAYED = [case for case in CASES if "of AI SDK 6" not in case["name"]]  # whose attributes Node alone has
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


async def test_spans_of_threads_belong_to_the_only_open_example(opened):
    async with opened("traced.py") as running:
        assert shape(await steps_of(running, "threads")) == [("starts threads", ["lone"]), "lone"]


async def test_spans_of_examples_at_the_same_time_are_not_mixed(opened):
    names = [f"example {number}" for number in range(5)]
    async with opened("traced_async.py", workers=1, concurrency=8) as running:
        results = await running.evaluate(*({"name": name} for name in names), capture_traces=True)
    shapes = [shape(result["trajectory"]["steps"]) for result in results]
    assert shapes == [[(name, ["within " + name])] for name in names]


async def test_components_have_the_records_of_their_spans_or_of_the_example_if_no_span_is_of_one(opened):
    async with opened("traced.py", workers=1) as running:
        rows = [{"do": each} for each in ("genai", "exported")]
        results = await running.evaluate(*rows, capture_traces=True)
        candidate = running.program.info.seed_candidate
        examples = list(zip(rows, results, strict=True))
        made = customary_records(examples, ["planner", "solver"], candidate, seed=0)
    whole = {"Inputs": {"do": "exported"}, "Generated Outputs": "exported", "Feedback": "Score: 1.0"}
    [record, of_example] = made["dataset"]["planner"]
    assert (record["Generated Outputs"], record["Feedback"]) == ("Two days.", "well done")
    assert list(record["Inputs"]) == ["Context", "model"]
    assert {name: of_example[name] for name in whole} == whole
    assert made["dataset"]["solver"] == [of_example]
    assert "the span 'chat m' of a model call is of no component" in results[0]["log"]


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


async def test_a_provider_that_the_program_sets_while_an_example_runs_is_used_from_the_next_one_on(opened):
    async with opened("traced.py", env={"SETUP": "late"}, workers=1) as running:
        await running.one({"do": "late"}, capture_traces=True)
        result = await running.one({"do": "late"}, capture_traces=True)
    assert result["output"] == ["chat m", "judge", "chat m"]
    assert shape(result["trajectory"]["steps"]) == ["chat m"]
