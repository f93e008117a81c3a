"""Trees of small repositories, which nothing may be left of and nothing may have touched."""

import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from rpc_server.settings import Settings
from rpc_server.worktrees.worktree_program import open_worktrees
from tests.rpc_server.mutations.project import Project
from tests.rpc_server.worktrees.worktree_project import FILES, Open, Opened


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path, FILES)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "evolverpc"


@pytest.fixture
async def opened(cache: Path) -> AsyncIterator[Open]:
    """Open a project's trees: `await opened(project, setting=value)`; closed after the test."""
    del cache  # it is asked for because servers keep their trees there
    async with AsyncExitStack() as stack:
        states: list[Path] = []

        async def open_(project: Project, **given: Any) -> Opened:
            usual: dict[str, Any] = {"root": project.folder, "trees": True, "workers": 1, "start_timeout_s": 30.0}
            if "command" not in given:
                usual |= {"program": "app.py", "python": Path(sys.executable)}
            before = project.digest()
            program, _ = await open_worktrees(Settings(**{**usual, **given}))
            state = program.instances.state.folder.parents[1]
            states.append(state)
            stack.callback(lambda: _check(project, before))
            stack.push_async_callback(program.close)
            return Opened(project, program, state)

        yield open_
    for state in states:
        assert list((state / "servers").iterdir()) == []


def _check(project: Project, before: str) -> None:
    assert project.digest() == before
