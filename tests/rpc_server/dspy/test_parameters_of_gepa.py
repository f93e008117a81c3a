"""Every parameter of `dspy.GEPA` has a row in the guide; those of its proposer and warnings reach the program."""

import ast
import logging
import re
from pathlib import Path

import pytest

from protocol.errors import ProgramFailed
from rpc_server.program.process import written_output

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "dspy.md"


def rows_of_the_guide() -> set[str]:
    table = GUIDE.read_text().partition("| parameter | here |")[2]
    return {name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}


def parameters_of_gepa(source: str) -> list[str]:
    """The parameters of `dspy.GEPA` in the module that defines it, which takes seconds to import."""
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == "GEPA"]
    [begin] = [node for node in classes[0].body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    return [argument.arg for argument in (*begin.args.args[1:], *begin.args.kwonlyargs)]


@pytest.mark.parametrize("environment", ["dspy_python", "oldest_dspy_python"])
def test_the_guide_has_a_row_for_every_parameter_of_the_installed_dspy_gepa(request, environment):
    python = request.getfixturevalue(environment)
    [source] = python.parents[1].glob("lib/python*/site-packages/dspy/teleprompt/gepa/gepa.py")
    parameters = parameters_of_gepa(source.read_text())
    assert len(parameters) > 20
    assert [name for name in parameters if name not in rows_of_the_guide()] == []
    if environment == "dspy_python":
        assert rows_of_the_guide() - {*parameters} == {"custom_instruction_proposer"}


async def test_an_instruction_proposer_has_the_reflection_model_and_dspys_warning_of_another_score_is_in_the_log(
    opened, caplog
):
    settings = {
        "instruction_proposer": "variants.whose_model",
        "reflection_lm": "variants.asked",
        "warn_on_score_mismatch": True,
    }
    with caplog.at_level(logging.INFO, written_output.name):
        async with opened(metric="variants.harsher", dspy=settings) as running:
            results = await running.evaluate({"word": "word3", "code": "ab12"}, capture_traces=True)
            dataset = (await running.reflect(results, "look", "finish"))["dataset"]
            proposal = {
                "candidate": running.seed,
                "reflective_dataset": dataset,
                "components_to_update": ["look", "finish"],
            }
            answer = await running.program.call("propose_new_texts", proposal)
    assert answer["texts"] == {"look": "asked", "finish": "asked"}
    mismatch = "The score returned by the metric with pred_name is different from the overall metric score"
    assert {record.source for record in caplog.records if mismatch in record.message} == {"make_reflective_dataset"}


@pytest.mark.long
async def test_a_proposer_that_cannot_be_called_is_named_at_the_start(opened):
    with pytest.raises(ProgramFailed) as failed:
        async with opened(dspy={"instruction_proposer": "variants.NUMBER"}):
            pass
    assert failed.value.message == "variants.NUMBER is a int, which cannot be called"
