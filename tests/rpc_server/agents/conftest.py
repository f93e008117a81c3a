"""Working folders for agents, the progress they report, and their processes, found by a mark in the environment."""

import asyncio
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from rpc_server.mutations.agents import Agent, AgentResult
from tests.support.processes import processes_with
from tests.support.scripted_anthropic import ScriptedModel

MARK = "AGENT_TEST_MARK"


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], Any]]:
    """The server's loop."""
    return {"uvloop": uvloop.new_event_loop}


class Workplace:
    """A folder with one program in it, an environment, and the progress reported from the work there."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = environment
        self.reported: list[str] = []

    async def work(self, agent: Agent, prompt: str = "Make it louder.") -> AgentResult:
        async with asyncio.timeout(60):
            return await agent.work(
                prompt, self.reported.append, folder=self.folder, environment=self.environment, jail=None
            )

    def processes(self) -> dict[int, str]:
        """Return every living process that the work here started, with its command line."""
        return processes_with(f"{MARK}={self.environment[MARK]}")


@pytest.fixture
def workplace(tmp_path: Path) -> Iterator[Workplace]:
    """Provide `app.py` in a folder with the user's interpreter first on PATH; fail if one of its processes remains."""
    folder, user, home, temporary = (tmp_path / name for name in ("folder", "user", "home", "temporary"))
    for each in (folder, user, home, temporary):
        each.mkdir()
    (folder / "app.py").write_text('print("hello")\n')
    (user / "python").symlink_to(sys.executable)
    environment = {
        "PATH": f"{user}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "TMPDIR": str(temporary),
        MARK: uuid.uuid4().hex,
    }
    place = Workplace(folder, environment)
    yield place
    assert not place.processes()
    assert not list(temporary.glob("*")), "temporary files were left behind"


@pytest.fixture
async def model(workplace: Workplace) -> Any:
    """A scripted model that the work in `workplace` finds in its environment."""
    async with ScriptedModel() as scripted:
        workplace.environment.update(scripted.environment())
        yield scripted
