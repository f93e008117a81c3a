"""A DSPy program given to `evolverpc.optimize` as objects is optimized as by `dspy.GEPA`."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.docs import pages
from tests.rpc_server.dspy.conftest import NEWEST, environment

ROOT = Path(__file__).parents[3]
OURS = ("aiohttp", "gitpython", "jsonrpcserver", "orjson", "platformdirs", "pydantic", "rich", "typer", "uvloop")

pytestmark = pytest.mark.timeout(300)  # two whole runs

FIRST = """
import dspy
from codes import Codes, metric
from codes_task import TRAIN

student, trainset = Codes(), [dspy.Example(row).with_inputs("word") for row in TRAIN]
propose = lambda candidate, dataset, components: {name: "word1 is " + "0" * 4 for name in components}
"""
LAST = """
import json
optimized = {name: one.signature.instructions for name, one in student.named_predictors()}
print(json.dumps([result.best_candidate, optimized]))
"""


@pytest.fixture(scope="session")
def python() -> Path:
    """The interpreter of an environment with DSPy and what our packages need."""
    return environment(*NEWEST, *OURS)


def printed(python: Path, project: Path, *command: str) -> Any:
    """The JSON in the last line that a script prints."""
    env = os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    ended = subprocess.run([python, *command], cwd=project, env=env, capture_output=True, text=True, timeout=110)
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]
    return json.loads(ended.stdout.splitlines()[-1])


def test_rows_that_are_objects_reach_program_and_metric_themselves_in_the_context_of_the_call(project, python):
    wrong, seed_score, metric_calls, refused = printed(python, project, "with_objects.py")
    assert wrong == []
    assert seed_score == 0.5
    assert metric_calls > 14, "a run with the same rows is resumed"
    assert refused == "trainset: the rows of the run are objects of your script: give them again"


def test_the_call_of_the_guide_ends_with_the_best_program_in_the_student(project, python):
    call = pages.block("docs/guides/dspy.md", "# optimize_student.py").text
    assert 'reflection_lm="openai/gpt-5"' in call
    call = call.replace('reflection_lm="openai/gpt-5"', 'propose=propose, check="off"').replace("=500", "=60")
    (project / "optimize_student.py").write_text(f"import evolverpc\n{FIRST}{call}{LAST}")
    best, student = printed(python, project, "optimize_student.py")
    assert best == student
