"""A small repository whose program returns its folder and environment, and its worktrees opened in this process."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from protocol import Candidate
from rpc_server.program.program import Program
from tests.rpc_server.mutations.project import Project
from tests.rpc_server.program.conftest import Opened as OpenedProgram

APP = """
import os, sys
from helper import ANSWER

seed_candidate = {"greeting": "hello"}
version = "1"


def run(example, candidate, trace):
    trace.append(__file__)
    report = {
        "answer": ANSWER,
        "candidate": candidate,
        "cwd": os.getcwd(),
        "file": __file__,
        "helper": sys.modules["helper"].__file__,
        "python": sys.executable,
        "env": dict(os.environ),
        "files": sorted(os.listdir()),
    }
    return report


def score(example, output):
    return 1.0
"""
FILES: dict[str, str | bytes] = {"app.py": APP, "helper.py": "ANSWER = 1\n", ".gitignore": "__pycache__/\n*.dat\n"}


class Opened(OpenedProgram):
    """A program over worktrees, with shorthands for tests."""

    def __init__(self, project: Project, program: Program, state: Path) -> None:
        super().__init__(program, "")
        self.project = project
        self.state = state
        self.seed = program.info.seed_candidate

    def at(self, commit: str, **texts: str) -> Candidate:
        return {**self.seed, "git_branch": f"x@{commit}", **texts}

    async def results(self, candidate: Candidate, *rows: Any, capture_traces: bool = False) -> list[dict[str, Any]]:
        return await self.evaluate(*(rows or ({},)), candidate=candidate, capture_traces=capture_traces)

    async def output(self, candidate: Candidate) -> dict[str, Any]:
        (result,) = await self.results(candidate)
        assert result["status"] == "ok", result
        output: dict[str, Any] = result["output"]
        return output

    async def records(self, candidate: Candidate, results: list[dict[str, Any]], *names: str) -> dict[str, Any]:
        batch = [{"id": str(at), "data": {}} for at in range(len(results))]
        return await self.program.call(
            "make_reflective_dataset",
            {
                "candidate": candidate,
                "eval_batch": {"batch": batch, "results": results},
                "components_to_update": list(names),
            },
        )

    @property
    def folders(self) -> int:
        """Return the worktrees on disk."""
        return len(list(self.state.glob("servers/*/trees/*")))


Open = Callable[..., Awaitable[Opened]]


def second(project: Project, files: Mapping[str, str]) -> str:
    """Another commit on a branch of its own; the user's folder is back at the first."""
    branches = project.git("branch", "--list").count("\n")
    project.git("checkout", "--quiet", "-b", f"branch-{branches}")
    project.write(dict(files))
    commit = project.commit("second")
    project.git("checkout", "--quiet", "main")
    return commit
