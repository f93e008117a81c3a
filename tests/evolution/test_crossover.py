"""A whole run that merges the code of two candidates, by the real agent after a conflict."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.evolution.conftest import Worlds
from tests.evolution.scenario import Change, Reflection, scripts_of, use
from tests.sandbox_runtime.source.repositories import commit

NONE, CIRCLE, SQUARE = "KINDS = set()\n", 'KINDS = {"circle"}\n', 'KINDS = {"square"}\n'
APP = """\
import first

seed_candidate = {"unknown": "unknown"}
KNOWN = {"plain"} | first.KINDS


def run(example, candidate):
    return example["kind"] if example["kind"] in KNOWN else candidate["unknown"]


def score(example, output):
    return (1, "right") if output == example["kind"] else (0, f"expected {example['kind']}")
"""
RESOLVED = 'KINDS = {"circle", "square"}\n'
FLAGS = ("--use-merge", "--proposals", "1x2", "--candidate-selection-strategy", "pareto", "--max-metric-calls", 31)
"""Two changes of the seed in the first iteration, a merge in the second."""


class InTurn(Reflection):
    """A reflection model that names one change after the other."""

    def chosen(self, prompt: str) -> Change:  # noqa: ARG002  # in the order of the plan
        return self._changes[(len(self.prompts) - 1) % len(self._changes)]


def prepared(folder: Path) -> Path:
    """The program's repository, and the rows beside it."""
    toml = 'program = "app.py"\nallow_mutations = true\n'
    ignored = "__pycache__/\n"
    files = {"app.py": APP, "first.py": NONE, "gepa.toml": toml, ".gitignore": ignored}
    commit(folder / "kinds", files)
    for split, times in (("train", 1), ("val", 2)):  # GEPA merges parents with five scores in common
        rows = [{"id": f"{kind}-{at}", "kind": kind} for kind in ("plain", "circle", "square") for at in range(times)]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "kinds"


@pytest.mark.long
@pytest.mark.timeout(400)
def test_two_lines_of_code_are_merged(world: Worlds) -> None:
    planned = (
        Change("Recognise circles", (("first.py", NONE, CIRCLE),), tested=False),
        Change("Recognise squares", (("first.py", NONE, SQUARE),), tested=False),
    )
    written = use("Write", file_path="{folder}/first.py", content=RESOLVED)
    resolves = [[use("Read", file_path="{folder}/first.py")], [written], ["Kept both kinds."]]
    conflict: dict[str, Any] = {"when": "Resolve every conflict", "turns": resolves}
    here = world.of(InTurn(planned), [conflict, *scripts_of(planned, "")], prepared)
    with here.serving() as endpoint:
        events = here.optimize(endpoint, *FLAGS)

    result = json.loads((here.folder / "run" / "result.json").read_text())
    assert result["val_aggregate_scores"] == [pytest.approx(score) for score in (1 / 3, 2 / 3, 2 / 3, 1.0)]
    first, second, merge = [event for event in events if event["event"] == "mutated"]
    assert {first["request"], second["request"]} == {change.title for change in planned}
    assert (merge["kind"], sorted(merge["parents"])) == ("merge", [1, 2])
    parents = here.git("rev-parse", f"{merge['commit']}^1", f"{merge['commit']}^2").split()
    assert sorted(parents) == sorted([first["commit"], second["commit"]])
    assert here.git("show", f"{merge['commit']}:first.py") == RESOLVED
    assert "Kept both kinds." in here.git("log", "-1", "--format=%B", merge["commit"])
