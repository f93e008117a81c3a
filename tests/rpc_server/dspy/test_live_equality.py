"""A DSPy program given to `evolverpc.optimize` as objects is optimized as by `dspy.GEPA`."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.docs import pages
from tests.rpc_server.dspy.conftest import REQUIREMENTS
from tests.support.installed import python_with

ROOT = Path(__file__).parents[3]

pytestmark = [pytest.mark.timeout(300), pytest.mark.long]

RUN_BOTH = """
import runpy

for script in ("with_objects.py", "optimize_student.py"):
    runpy.run_path(script, run_name="__main__")
    print("end of", script)
"""
"""One process for both scripts, as most of their time is the import of DSPy."""
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
    return python_with("dspy-live", REQUIREMENTS / "live.txt")


def printed(project: Path, python: Path) -> dict[str, Any]:
    """The JSON in the last line that each script prints."""
    call = pages.block("docs/guides/dspy.md", "# optimize_student.py").text
    assert 'reflection_lm="openai/gpt-5"' in call
    call = call.replace('reflection_lm="openai/gpt-5"', 'propose=propose, check="off"').replace("=500", "=60")
    (project / "optimize_student.py").write_text(f"import evolverpc\n{FIRST}{call}{LAST}")
    (project / "run_both.py").write_text(RUN_BOTH)
    env = os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    command = [python, "run_both.py"]
    ended = subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, timeout=220)
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]
    lines = ended.stdout.splitlines()
    return {
        script: json.loads(lines[lines.index(f"end of {script}") - 1])
        for script in ("with_objects.py", "optimize_student.py")
    }


def test_rows_that_are_objects_reach_the_program_themselves_and_the_call_of_the_guide_ends_with_its_best_texts(
    project, python
):
    found = printed(project, python)
    wrong, seed_score, metric_calls, refused = found["with_objects.py"]
    assert wrong == []
    assert seed_score == 0.5
    assert metric_calls > 14, "a run with the same rows is resumed"
    assert refused == "trainset: the rows of the run are objects of your script: give them again"
    best, student = found["optimize_student.py"]
    assert best == student
