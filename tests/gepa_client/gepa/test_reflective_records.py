"""The records that the optimizer makes of examples and steps, for programs that make none of their own."""

from typing import Any

import pytest

from gepa_client.gepa.reflective_records import customary_records
from protocol.code import ADDED_COMPONENTS, GIT_BRANCH

PLANNED = {"component": "planner", "inputs": {"question": "why?"}, "outputs": {"plan": "look"}}


def made(trajectories: list[Any], *components: str, seed: int = 0, **more: Any) -> dict[str, Any]:
    ok = {"status": "ok", "score": 1, "output": "out", "seconds": 0, **more}
    examples = [({"row": at}, {**ok, "trajectory": trajectory}) for at, trajectory in enumerate(trajectories)]
    return customary_records(examples, components, {}, seed=seed)


def records(trajectories: list[Any], *components: str, **more: Any) -> dict[str, Any]:
    return made(trajectories, *components, **more)["dataset"]


def of_one(step: dict[str, Any], **more: Any) -> dict[str, Any]:
    [record] = records([{"steps": [{"component": "planner", **step}]}], "planner", **more)["planner"]
    return record


def test_each_component_has_the_records_of_its_own_steps_nested_ones_included() -> None:
    inner = {"component": "writer", "inputs": {"a": 1}, "outputs": 2}
    nested = {"name": "search", "inputs": {}, "outputs": [], "steps": [inner]}
    assert records([{"steps": [PLANNED]}, {"steps": [nested], "trace": ["seen"]}], "planner", "writer", "other") == {
        "planner": [{"Inputs": {"question": "why?"}, "Generated Outputs": {"plan": "look"}, "Feedback": "Score: 1.0"}],
        "writer": [{"Inputs": {"a": 1}, "Generated Outputs": 2, "Feedback": "Score: 1.0"}],
        "other": [],
    }


def test_an_example_without_steps_of_components_has_one_record_for_all_with_its_trace() -> None:
    tools = {"steps": ["a text", {"name": "search", "inputs": {}, "outputs": 1}]}
    trajectories = [{"steps": [PLANNED]}, None, ["asked"], tools, {**tools, "trace": ["seen"]}, {"data": 1}]
    found = records(trajectories, "planner", "writer")
    assert found["planner"][1:] == found["writer"]
    assert [record["Inputs"] for record in found["writer"]] == [{"row": at} for at in range(1, 6)]
    assert [record.get("Trace") for record in found["writer"]] == [None, ["asked"], None, ["seen"], {"data": 1}]
    whole = customary_records(
        [
            ({"$exact": ["tuple", [{"$exact": ["integer", "9007199254740993"]}]]}, {"score": 0.5, "output": None}),
            (1, {"score": None, "error": {"type": "E", "message": "m", "traceback": "at x"}}),
            (2, {"score": None, "output": 3, "component_feedback": {"rules": "terser"}, "feedback": "f"}),
        ],
        ["rules", "other"],
        {},
        seed=0,
    )["dataset"]
    assert whole["rules"] == [
        {"Inputs": ["9007199254740993"], "Generated Outputs": "", "Feedback": "Score: 0.5"},
        {"Inputs": 1, "Generated Outputs": "", "Feedback": "The program failed: E: m\nat x"},
        {"Inputs": 2, "Generated Outputs": 3, "Feedback": "terser"},
    ]
    assert whole["other"][2]["Feedback"] == "f"


def test_of_several_steps_one_is_drawn_by_component_and_then_by_example() -> None:
    steps = [{"component": "ba"[at % 2], "inputs": {"at": at}, "outputs": at} for at in range(7)]
    trajectories = [{"steps": steps[: at + 2]} for at in range(6)]
    for seed, drawn in ((0, [[0, 2, 0, 2, 4, 6], [1, 1, 3, 3, 5, 1]]), (2**53 - 1, [[0] * 6, [1, 1, 3, 1, 3, 3]])):
        found = records(trajectories, "b", "a", seed=seed)
        assert [[record["Generated Outputs"] for record in found[name]] for name in "ba"] == drawn


def test_the_first_step_that_failed_is_taken_and_draws_nothing() -> None:
    broken = {"component": "planner", "outputs": None, "error": {"type": "TypeError", "message": "no plan"}}
    later = {**broken, "error": {"type": "RangeError", "message": "later"}}
    record = {"Inputs": {}, "Generated Outputs": "", "Feedback": "This step failed: TypeError: no plan\nwrong"}
    several = {"steps": [{**PLANNED, "outputs": at} for at in range(8)]}
    for seed in range(5):
        failing = [{"steps": [PLANNED, PLANNED, broken, later]}, several]
        others = records([several], "planner", seed=seed, feedback="wrong")["planner"]
        assert records(failing, "planner", seed=seed, feedback="wrong")["planner"] == [record, *others]


def test_feedback_on_the_component_comes_before_that_on_the_example() -> None:
    steps = {"steps": [PLANNED, {"component": "writer", "inputs": None, "outputs": False}]}
    found = records([steps], "planner", "writer", feedback="all wrong", component_feedback={"planner": "no plan"})
    assert found["planner"][0]["Feedback"] == "no plan"
    assert found["writer"] == [{"Inputs": {}, "Generated Outputs": False, "Feedback": "all wrong"}]


def test_a_parse_failure_shows_the_answer_and_the_structure_that_was_expected() -> None:
    step = {"outputs": None, "raw": "I would look.", "error": {"type": "parse_failure", "message": "no JSON"}}
    assert of_one({**step, "expected": '{"plan": ...}'}, feedback="wrong") == {
        "Inputs": {},
        "Generated Outputs": "Couldn't parse the output as per the expected output format. The model's raw response "
        "was:\n```\nI would look.\n```\n\n",
        "Feedback": 'Your output failed to parse. Follow this structure:\n{"plan": ...}',
    }
    assert of_one(step)["Feedback"] == "Your output failed to parse: no JSON"


def test_the_first_chat_history_is_shown_as_text_before_the_other_inputs() -> None:
    history = [{"role": "user", "content": "Grüße"}, {"role": "assistant", "content": [{"type": "text"}]}]
    others = {"question": "why?", "second": history, "empty": [], "rows": [{"role": "user"}], "texts": ["role"]}
    inputs = of_one({"inputs": {"question": "why?", "history": history, **others}})["Inputs"]
    shown = ['{"role":"user","content":"Grüße"}', '{"role":"assistant","content":[{"type":"text"}]}']
    context = f"```json\n  0: {shown[0]}\n  1: {shown[1]}\n```"
    assert list(inputs.items()) == [("Context", context), *others.items()]


def test_an_image_as_the_text_of_a_data_url_is_given_by_reference_once() -> None:
    url, large = "data:image/png;base64,iVBORw0KGgo=", f"data:image/png;base64,{'A' * 8_000_000}"
    others = {"text": f"see {url}", "none": "data:image/png;base64,no!"}
    inputs = {"history": [{"role": "user", "content": url}], "nested": [{"url": url}], "large": large, **others}
    answer = made([{"steps": [{"component": "planner", "inputs": inputs, "outputs": url}]}], "planner")
    [name] = answer["images"]
    assert answer["images"][name] == {"media_type": "image/png", "base64": "iVBORw0KGgo="}
    assert answer["dataset"]["planner"][0]["Generated Outputs"] == {"$image": name}
    assert answer["dataset"]["planner"][0]["Inputs"] == {
        "Context": f'```json\n  0: {{"role":"user","content":{{"$image":"{name}"}}}}\n```',
        "nested": [{"url": {"$image": name}}],
        "large": {"type": "image/png", "repr": "an image of 8000000 characters in base64"},
        **others,
    }


@pytest.mark.parametrize("with_steps", [False, True])
def test_the_records_of_the_code_are_those_of_all_components_each_once(with_steps: bool) -> None:
    candidate = {GIT_BRANCH: "main@" + "a" * 40, "rules": "r", ADDED_COMPONENTS: '{"style": "s"}'}
    steps = [{"component": name, "inputs": {}, "outputs": name} for name in ("rules", "style")]
    examples = [(1, {"score": 1, "output": "o", "trajectory": {"steps": steps} if with_steps else None})]
    found = customary_records(examples, [GIT_BRANCH, "style", ADDED_COMPONENTS], candidate, seed=0)["dataset"]
    own = {"Inputs": {}, "Generated Outputs": "style", "Feedback": "Score: 1.0"}
    whole = {"Inputs": 1, "Generated Outputs": "o", "Feedback": "Score: 1.0"}
    first = {**own, "Generated Outputs": "rules", "Component": "rules"}
    assert found == {
        GIT_BRANCH: [first, {"Component": "style", **own}] if with_steps else [whole],
        "style": [own if with_steps else whole],
        ADDED_COMPONENTS: [own if with_steps else whole],
    }
