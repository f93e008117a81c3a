"""A DSPy program behind `evolverpc serve` is optimised as `dspy.GEPA` optimises it in one process."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from sandbox_runtime import running_server
from tests.support.rounds import ALL, rounds

SERVER = Path(sys.executable).with_name("gepa-server")
ROOT = Path(__file__).parents[3]
TOKEN = "token-of-the-tests"
SEEDS = rounds(3)
RUNS_S = 140.0
"""A time limit for the runs of one process."""
NO_FETCH = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
"""Without it an older DSPy requests prices from GitHub when it is imported, three times if there is no network."""

pytestmark = pytest.mark.timeout(300)  # two whole runs


def options(seed: int) -> dict[str, Any]:
    return {"seed": seed, "max_metric_calls": 300, "use_merge": True}


def outcome(python: Path, project: Path, script: str, argument: Any, **environment: str) -> list[dict[str, Any]]:
    # GEPA's merges go through sets of texts
    env = os.environ | {"PYTHONHASHSEED": "0", **environment}
    command = [str(python), script, json.dumps(argument)]
    ended = subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, timeout=RUNS_S)
    assert ended.returncode == 0, ended.stderr[-4000:]
    found: list[dict[str, Any]] = json.loads(ended.stdout)
    return found


PROPOSERS = {
    "gepa": {},
    "dspy": {"reflection_lm": "codes.reflection_lm"},
    "own": {"instruction_proposer": "codes.Proposer"},
}
COMPARED = tuple(PROPOSERS) if ALL else ("gepa",)


@contextmanager
def served(project: Path, python: Path, runs: Sequence[tuple[str, int]]) -> Iterator[list[str]]:
    """The URL of a server for each proposer and seed, all from dotted paths and file names alone."""
    flags = ["--kind", "dspy", "--program", "codes.Codes", "--metric", "codes.metric", "--python", str(python)]
    rows = ["--datasets", "train=train.jsonl", "--datasets", "val=val.json"]
    with ExitStack() as servers:
        yield [
            servers.enter_context(
                running_server(
                    [str(SERVER), *flags, *rows, "--dspy", json.dumps({**PROPOSERS[proposer], "seed": seed})],
                    cwd=project,
                    env={"GEPA_TOKEN": TOKEN, **NO_FETCH},
                )
            ).url
            for proposer, seed in runs
        ]


def ours_over(urls: list[str], project: Path, runs: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    argument = [(proposer, url, options(seed)) for url, (proposer, seed) in zip(urls, runs, strict=True)]
    here = Path(sys.executable)
    return outcome(here, project, "with_server.py", argument, GEPA_TOKEN=TOKEN, PYTHONPATH=str(ROOT))


@pytest.mark.repeated
def test_candidates_and_scores_are_those_of_dspy_gepa_with_each_proposer(project, dspy_python):
    runs = [(proposer, seed) for proposer in COMPARED for seed in SEEDS]
    argument = [(proposer, options(seed)) for proposer, seed in runs]
    theirs = outcome(dspy_python, project, "with_dspy.py", argument)
    with served(project, dspy_python, runs) as urls:
        ours = ours_over(urls, project, runs)
    assert dict(zip(runs, ours, strict=True)) == dict(zip(runs, theirs, strict=True))
    for run in theirs:
        assert len(run["candidates"]) > 5
        assert max(run["scores"]) > run["scores"][0] + 0.15
    of_gepa = [run for (proposer, _), run in zip(runs, theirs, strict=True) if proposer == "gepa"]
    assert any(len(parents) == 2 for run in of_gepa for parents in run["parents"]), "a merge"


@pytest.mark.long
def test_a_program_of_the_oldest_dspy_is_optimised(project, oldest_dspy_python):
    runs = [("gepa", 0)]
    with served(project, oldest_dspy_python, runs) as urls:
        [run] = ours_over(urls, project, runs)
    assert max(run["scores"]) > run["scores"][0] + 0.15
