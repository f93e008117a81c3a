"""Field descriptions and demos as components of their own."""

import json

import pytest
import pytest_asyncio

from tests.rpc_server.dspy.conftest import made_project, opener

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory, dspy_python):
    """`codes.Codes` with descriptions and demos as components."""
    project = made_project(tmp_path_factory.mktemp("opt-in") / "project")
    async with opener(project, dspy_python)(dspy={"field_descriptions": True, "demos": True}) as opened:
        yield opened


def row(number):
    return {"word": f"word{number}", "code": "abcd"}


async def test_descriptions_and_demos_are_components_that_change_the_prompt(running):
    assert running.seed == {
        "look": "Look the word up.",
        "look.inputs.word": "${word}",
        "look.outputs.hint": "what comes to mind",
        "look.outputs.code": "${code}",
        "look.demos": "[]",
        "finish": "Finish the code.",
        "finish.inputs.word": "${word}",
        "finish.inputs.found": "${found}",
        "finish.outputs.code": "${code}",
        "finish.demos": "[]",
    }
    about = {component.name: component.description for component in running.program.info.components}
    assert about["finish.inputs.found"] == "Description of the input field `found` of `finish`."
    assert about["finish.demos"] == "Worked examples for `finish`: a JSON list of objects, field to value."
    texts = {"look.outputs.hint": "word2 is afb3", "look.outputs.code": "", "finish.inputs.found": "word2 is zzb3"}
    described = await running.one(row(2), **texts)
    assert described["output"] == {"code": "afb3"}
    shown = json.dumps([{"word": "word3", "found": "word2 is afb3", "code": "ffca"}])
    assert (await running.one(row(2), **{"finish.demos": shown}))["output"]["code"] == "unb3"


async def test_their_records_are_those_of_their_predictor(running):
    results = await running.evaluate(row(2), capture_traces=True)
    answer = await running.reflect(results, "finish.demos", "finish.inputs.found", "finish")
    assert list(answer["dataset"]) == ["finish.demos", "finish.inputs.found", "finish"]
    assert answer["dataset"]["finish.demos"] == answer["dataset"]["finish.inputs.found"] == answer["dataset"]["finish"]


async def test_demos_that_cannot_be_read_are_the_candidates_fault_by_name(running):
    broken = await running.one(row(2), **{"finish.demos": '[{"word": '})
    assert broken["status"] == "program_error"
    assert broken["error"]["message"].startswith("component 'finish.demos': not JSON: ")
    strange = await running.one(row(2), **{"finish.demos": '["word3"]'})
    assert strange["error"]["message"] == "component 'finish.demos': not a JSON list of objects"
