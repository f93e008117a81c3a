"""Servers that run programs in a jail, their processes, and a program that runs the code in its examples."""

import asyncio
import os
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from evolverpc_common.settings.sources import SettingsError
from rpc_server.jail.jail import check_jail, create_jails
from tests.rpc_server.mutations.mutation_server import SCRIPTED
from tests.rpc_server.mutations.project import Project
from tests.rpc_server.server_process import asked, ready, server_process
from tests.support.processes import processes_with
from tests.support.waiting import eventually

PROGRAM = """\
seed_candidate = {"a": "b"}


def run(example, candidate):
    scope = {"found": None}
    exec(example, scope)
    return scope["found"]


def score(example, output):
    return 1.0
"""


class Server:
    """A running server. `pid`: its own."""

    def __init__(self, url: str, pid: int, token: str) -> None:
        self.pid = pid
        self.token = token
        self._url = url

    async def call(self, method: str, **params: Any) -> Any:
        """The result."""
        _, answer = await asked(self._url, method, params, **{"X-Gepa-Token": self.token})
        assert "result" in answer, answer
        return answer["result"]

    async def results(self, *rows: Any, **texts: str) -> list[dict[str, Any]]:
        """Evaluate these examples in one call; `texts` replace the seed's."""
        seed = (await self.call("discover"))["program"]["seed_candidate"]
        batch = [{"id": str(at), "data": row} for at, row in enumerate(rows)]
        answer = await self.call("evaluate", candidate={**seed, **texts}, batch=batch)
        results: list[dict[str, Any]] = answer["results"]
        return results

    async def found(self, code: str, **texts: str) -> Any:
        """Run the code as an example; return its `found`."""
        (result,) = await self.results(code, **texts)
        assert result["status"] == "ok", result
        return result["output"]


@asynccontextmanager
async def serving(
    folder: Path, *flags: str, jails: tuple[str, ...] = ("--jail",), **variables: str
) -> AsyncIterator[Server]:
    """Run a server with a jail during the block; none of its processes remains. `jail`: the flag that requires one."""
    mark = f"JAIL_TEST_{os.urandom(8).hex()}"
    token_file = folder / "token"
    arguments = ("--json", *jails, "--token-file", str(token_file), *flags)
    async with server_process(folder, *arguments, stderr=None, **variables, **{mark: "1"}) as process:
        event = await ready(process)
        yield Server(event["url"], process.pid, token_file.read_text().strip())
    await eventually(lambda: not processes_with(f"{mark}="))


def is_there(path: str | Path) -> bool:
    """Whether it is, outside of any jail."""
    return Path(path).exists()


@pytest.fixture(scope="session")
def _a_jail_can_be() -> None:
    try:
        asyncio.run(check_jail(create_jails()))
    except SettingsError as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def _jailable(_a_jail_can_be: None) -> None:
    """Skip all tests here if no jail is possible."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A repository with the program in it."""
    return Project(tmp_path_factory.mktemp("jail"), {"app.py": PROGRAM, ".gitignore": "__pycache__/\n"})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(_a_jail_can_be: None, project: Project) -> AsyncIterator[Server]:
    """Its commits served, each in a tree, and mutations of them."""
    flags = ("--program", "app.py", "--python", sys.executable, "--workers", "2", "--example-timeout-s", "20")
    flags += ("--env", "npm_config_cache=/tmp/mine")
    trees = ("--allow-mutations", "--tree-dir", str(project.folder.parent / "state"), "--agent-command")
    async with serving(project.folder, *flags, *trees, shlex.join(SCRIPTED), A_SECRET="of the server's") as running:
        yield running
