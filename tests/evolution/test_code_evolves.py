"""A whole run with the real coding agent: bad changes are refused, good ones kept, the user's files untouched."""

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.evolution.conftest import World, Worlds
from tests.evolution.scenario import CHANGES, COMPARE, REMEMBER, TESTS


def users_files(repository: Path) -> dict[str, str]:
    """Every file of the working tree, the index and HEAD, by what is in it."""
    paths = [path for path in repository.rglob("*") if ".git" not in path.parts and path.is_file()]
    paths += [repository / ".git" / name for name in ("index", "HEAD", "config")]
    paths = [path for path in paths if "node_modules" not in path.parts]
    return {str(path.relative_to(repository)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("language", ["python", "typescript"])
def test_the_code_evolves_and_bad_changes_are_refused_with_their_stage(world: Worlds, language: str) -> None:
    here = world(language)
    (here.repository / "notes.txt").write_text("the user's own, not committed\n")
    (here.repository / "AGENTS.md").write_text("Staged, not committed.\n")
    here.git("add", "AGENTS.md")
    before = users_files(here.repository)
    with here.serving() as endpoint:
        events = here.optimize(endpoint)
    assert users_files(here.repository) == before

    rejected = [(event["request"], event["stage"]) for event in events if event["event"] == "mutation_rejected"]
    assert rejected == [(change.title, change.stage) for change in CHANGES[language] if change.stage is not None]
    mutated = [event for event in events if event["event"] == "mutated"]
    assert [event["request"] for event in mutated] == [COMPARE, REMEMBER]
    assert all(f"stage `{stage}`" in here.reflection.prompts[-1] for _, stage in rejected)

    result = json.loads((here.folder / "run" / "result.json").read_text())
    assert (result["seed_score"], result["best_score"]) == (pytest.approx(1 / 3), 1.0)
    here.git("reset", "--quiet", "--hard")
    the_best_branch_works(here, language, result["run_id"], mutated[-1])


def the_best_branch_works(here: World, language: str, run_id: str, best: dict[str, Any]) -> None:
    """It checks out, its tests pass, and it is what is left of the run's branches when the others are deleted."""
    assert len(evolved(here)) == 2
    assert COMPARE in here.client(None, "branches", run_id)
    assert "first" in here.client(None, "branches", run_id, "--diff", "best")
    here.client(None, "branches", run_id, "--check-out", "--repo", here.repository)
    assert here.git("rev-parse", "HEAD").strip() == best["commit"]
    subprocess.run(TESTS[language], shell=True, cwd=here.repository, check=True)  # noqa: S602  # a constant
    here.client(None, "branches", run_id, "--delete", "--yes", "--repo", here.repository)
    assert evolved(here) == [best["branch"]]


def evolved(here: World) -> list[str]:
    return here.git("branch", "--list", "evolve/*", "--format", "%(refname:short)").split()
