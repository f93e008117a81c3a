"""A whole run that merges the code of two candidates: by git, by the real agent after a conflict, or refused."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.evolution.conftest import Worlds
from tests.evolution.scenario import Change, Reflection, scripts_of, use

NONE, CIRCLE, SQUARE = "KINDS = set()\n", 'KINDS = {"circle"}\n', 'KINDS = {"square"}\n'
APP = """\
import first
import second

seed_candidate = {"unknown": "unknown"}
KNOWN = {"plain"} | first.KINDS | second.KINDS


def run(example, candidate):
    return example["kind"] if example["kind"] in KNOWN else candidate["unknown"]


def score(example, output):
    return (1, "right") if output == example["kind"] else (0, f"expected {example['kind']}")
"""
CHECK = "import app; assert len(app.KNOWN) <= {most}, 'these are too many kinds'"
RESOLVED = 'KINDS = {"circle", "square"}\n'
FLAGS = ("--use-merge", "--proposals", "1x2", "--candidate-selection-strategy", "pareto", "--max-metric-calls", 31)
"""Two changes of the seed in the first iteration, a merge in the second."""


class InTurn(Reflection):
    """A reflection model that names one change after the other."""

    def chosen(self, prompt: str) -> Change:  # noqa: ARG002  # in the order of the plan
        return self._changes[(len(self.prompts) - 1) % len(self._changes)]


def prepared(folder: Path, most: int) -> Path:
    """The program's repository, whose check allows as many kinds, and the rows beside it."""
    repository = folder / "kinds"
    repository.mkdir()
    settings = {"program": "app.py", "allow_mutations": True}
    settings |= {"check_command": ["python", "-c", CHECK.format(most=most)], "allow_tests": True}
    toml = "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
    ignored = "__pycache__/\n"
    files = {"app.py": APP, "first.py": NONE, "second.py": NONE, "gepa.toml": toml, ".gitignore": ignored}
    for name, content in files.items():
        (repository / name).write_text(content)
    for split, times in (("train", 1), ("val", 2)):  # GEPA merges parents with five scores in common
        rows = [{"id": f"{kind}-{at}", "kind": kind} for kind in ("plain", "circle", "square") for at in range(times)]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    author = ("-c", "user.name=Example", "-c", "user.email=example@example.invalid")
    for command in (("init", "--quiet"), ("add", "--all"), (*author, "commit", "--quiet", "--message", "Kinds")):
        subprocess.run(["git", *command], cwd=repository, check=True)
    return repository


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("file", "most", "scores", "merged"),
    [
        pytest.param("second.py", 3, (2 / 3, 2 / 3, 1.0), {"first.py": CIRCLE, "second.py": SQUARE}, id="by git"),
        pytest.param("first.py", 3, (2 / 3, 2 / 3, 1.0), {"first.py": RESOLVED, "second.py": NONE}, id="by the agent"),
        pytest.param("second.py", 2, (2 / 3, 2 / 3), None, id="refused by the check"),
    ],
)
def test_two_lines_of_code_are_merged_or_the_merge_is_refused_with_its_stage(
    world: Worlds, file: str, most: int, scores: tuple[float, ...], merged: dict[str, str] | None
) -> None:
    planned = (
        Change("Recognise circles", (("first.py", NONE, CIRCLE),), tested=False),
        Change("Recognise squares", ((file, NONE, SQUARE),), tested=False),
    )
    written = use("Write", file_path="{folder}/first.py", content=RESOLVED)
    resolves = [[use("Read", file_path="{folder}/first.py")], [written], ["Kept both kinds."]]
    conflict: dict[str, Any] = {"when": "Resolve every conflict", "turns": resolves}
    here = world.of(InTurn(planned), [conflict, *scripts_of(planned, "")], lambda folder: prepared(folder, most))
    with here.serving() as endpoint:
        events = here.optimize(endpoint, *FLAGS)

    result = json.loads((here.folder / "run" / "result.json").read_text())
    assert result["val_aggregate_scores"] == [pytest.approx(score) for score in (1 / 3, *scores)]
    mutations = [event for event in events if event["event"] in ("mutated", "mutation_rejected")]
    assert {event["request"] for event in mutations[:2]} == {change.title for change in planned}
    merge = mutations[2]
    assert (merge["kind"], sorted(merge["parents"])) == ("merge", [1, 2])
    if merged is None:
        assert (merge["event"], merge["stage"]) == ("mutation_rejected", "check")
        assert "too many kinds" in json.dumps(merge)
        return
    parents = here.git("rev-parse", f"{merge['commit']}^1", f"{merge['commit']}^2").split()
    assert sorted(parents) == sorted(event["commit"] for event in mutations[:2])
    assert {name: here.git("show", f"{merge['commit']}:{name}") for name in merged} == merged
    summary = "Kept both kinds." if file == "first.py" else "git found no conflicts."
    assert summary in here.git("log", "-1", "--format=%B", merge["commit"])
