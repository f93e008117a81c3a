"""Mutations in this process over a small repository, and an agent that runs a script."""

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from protocol import ApplyMutationParams, ApplyMutationResult, Candidate
from protocol.errors import MutationRejected
from rpc_server.mutations.transaction import CodeMutations, open_mutations
from rpc_server.settings import Settings
from rpc_server.worktrees.worktree_program import WorktreeProgram, open_worktrees
from tests.rpc_server.mutations.project import Project

SCRIPTED = (
    "sh",
    "-c",
    r"""sed -n '/^<change-request-/,/^<\/change-request-/{/^<.*change-request-/!p}' > "$TMPDIR/script"; """
    r""". "$TMPDIR/script" """,
)
"""An agent that runs the change request as a script of the shell, with the user's Python as `python`."""


def settings_for(project: Project, **given: Any) -> Settings:
    """Settings of a server for the project, its state beside it."""
    usual: dict[str, Any] = {
        "root": project.folder,
        "program": "app.py",
        "python": Path(sys.executable),
        "workers": 1,
        "start_timeout_s": 20.0,
        "allow_mutations": True,
        "tree_dir": project.folder.parent / "state",
        "agent_command": SCRIPTED,
        "agent_timeout_s": 20.0,
    }
    return Settings(**{**usual, **given})


class Served:
    """Mutations of one project."""

    def __init__(self, project: Project, program: WorktreeProgram, mutations: CodeMutations) -> None:
        self.project = project
        self.program = program
        self.mutations = mutations
        self.seed = program.info.seed_candidate
        self._progress: list[str] = []
        self._reported = asyncio.Event()

    async def apply(
        self, kind: str, *, candidate: Candidate | None = None, name: str | None = None, **mutation: Any
    ) -> ApplyMutationResult:
        """The answer; `name` is `run/number`."""
        run, _, number = (name or f"{uuid.uuid4().hex}/0").partition("/")
        asked = {
            "candidate": candidate or self.seed,
            "mutation": {"kind": kind, **mutation},
            "name": {"run": run, "number": int(number)},
        }
        return await self.mutations.apply(ApplyMutationParams.model_validate(asked), self._report)

    async def reached(self, stage: str) -> None:
        """Wait for a progress message that contains these words."""
        while not any(stage in message for message in self._progress):
            self._reported.clear()
            await self._reported.wait()

    def _report(self, message: str) -> None:
        self._progress.append(message)
        self._reported.set()

    async def change(self, script: str, **given: Any) -> ApplyMutationResult:
        """Apply the change of an agent that runs this script."""
        return await self.apply("change_request", request=script, **given)

    async def rejected(self, kind: str, **given: Any) -> dict[str, Any]:
        """The details of the rejection."""
        stage, found = await self.outcome(kind, **given)
        assert stage != "applied", f"it was applied: {found.diff}"
        return dict(found)

    async def outcome(self, kind: str, **given: Any) -> tuple[str, Any]:
        """`applied` and the answer, or the stage and the details."""
        try:
            return "applied", await self.apply(kind, **given)
        except MutationRejected as error:
            return str(error.details["stage"]), error.details

    def left(self) -> list[str]:
        """Return the remaining drafts."""
        return [draft.name for draft in (self.program.instances.state.folder / "drafts").iterdir()]


@asynccontextmanager
async def served(project: Project, **given: Any) -> AsyncIterator[Served]:
    """Provide a server's mutations during the block."""
    program, _ = await open_worktrees(settings_for(project, **given))
    try:
        yield Served(project, program, await open_mutations(program.instances))
    finally:
        await program.close()
