"""A server in its own process: mutations over HTTP, and what is left when it is killed in the middle of one."""

import json
import os
import signal
import sys
import uuid
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import RpcError
from sandbox_runtime import ServerEndpoint
from tests.rpc_server.mutations.mutation_server import SCRIPTED, served
from tests.rpc_server.mutations.patches import added, changed
from tests.rpc_server.mutations.project import Project
from tests.rpc_server.mutations.test_transaction import GREETING
from tests.rpc_server.server_process import asked
from tests.support.forked_client import ForkServer
from tests.support.processes import processes_with
from tests.support.waiting import until

MARK = "MUTATION_TEST_MARK"
ROOT = Path(__file__).parents[3]

ONCE = 'if [ ! -e "$AT" ]; then touch "$AT"; setsid sleep 300 & sleep 300; fi'
"""Marks that it was reached and never ends; does nothing the second time."""

AGENT = {"kind": "change_request", "request": f"{ONCE}; echo x > notes/new.txt; echo Did it"}
PATCH = {"kind": "patch", "diff": added("notes/new.txt")}
HANGS = "import os, time, pathlib; at = pathlib.Path(os.environ['AT']); at.exists() or (at.touch(), time.sleep(300))"
STAGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "agent": (AGENT, {}),
    "build": (PATCH, {"build_command": ["sh", "-c", f"if [ -e notes/new.txt ]; then {ONCE}; fi"]}),
    "start": ({"kind": "patch", "diff": changed("texts.py", GREETING, f"{HANGS}; {GREETING}")}, {}),
    "check": (PATCH, {"check_command": ["sh", "-c", f"if [ -e notes/new.txt ]; then {ONCE}; fi"]}),
}


class Served:
    """Starts servers for a project, and finds the processes and files they leave."""

    def __init__(self, place: Path, fork_server: ForkServer) -> None:
        self._fork_server = fork_server
        self.project = Project(place)
        self.at = place / "at"
        self.state = place / "state"
        self._config = place / "gepa.toml"
        self._mark = uuid.uuid4().hex

    def running(self, **settings: Any) -> AbstractContextManager[ServerEndpoint]:
        """Run a server with these settings while the block runs."""
        given = {
            "root": str(self.project.folder),
            "program": "app.py",
            "python": sys.executable,
            "workers": 1,
            "allow_mutations": True,
            "jail": False,  # `AT` is outside of the tree
            "tree_dir": str(self.state),
            "agent_command": list(SCRIPTED),
            **settings,
        }
        lines = [f"{name} = {json.dumps(value)}\n" for name, value in given.items()]
        self._config.write_text("".join(lines) + f"[env]\nAT = {json.dumps(str(self.at))}\n")
        env = {MARK: self._mark, "PYTHONPATH": str(ROOT), "GEPA_TOKEN": "the-token-of-this-test"}
        return self._fork_server.running_server("--config", str(self._config), env=env)

    def processes(self) -> dict[int, str]:
        """Return the living processes that our servers started."""
        return processes_with(f"{MARK}={self._mark}")


async def ask(endpoint: ServerEndpoint, method: str, params: dict[str, Any] | None = None) -> Any:
    """The result; raises the error."""
    _, answer = await asked(endpoint.url, method, params or {}, Authorization=f"Bearer {endpoint.token}")
    if "error" in answer:
        raise RpcError.from_wire(answer["error"])
    return answer["result"]


@pytest.fixture
def server(tmp_path: Path, fork_server: ForkServer) -> Served:
    return Served(tmp_path, fork_server)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere not every orphan can be found")
@pytest.mark.parametrize(
    "stage", ["agent", *(pytest.param(each, marks=pytest.mark.long) for each in ("build", "start", "check"))]
)
async def test_a_server_killed_in_the_middle_leaves_nothing_after_the_next_start(server: Served, stage: str) -> None:
    mutation, settings = STAGES[stage]
    before = server.project.digest()
    name = {"run": "r", "number": 1}
    with server.running(**settings) as endpoint:
        seed = (await ask(endpoint, "discover"))["program"]["seed_candidate"]
        params = {"candidate": seed, "mutation": mutation, "name": name}
        await ask(endpoint, "apply_mutation", {**params, "_meta": {"call_id": "c", "wait_s": 0}})
        until(server.at.exists)
        os.kill(endpoint.pid, signal.SIGKILL)
        until(lambda: not server.processes())
    with server.running(**settings) as endpoint:
        (drafts,) = (server.state / "servers").glob("*/drafts")
        assert list(drafts.iterdir()) == []
        assert (server.project.digest(), server.project.branches()) == (before, {})
        made = await ask(endpoint, "apply_mutation", params)
        assert server.project.branches()["refs/heads/evolve/r/1"] == made["commit"]
    assert server.project.digest() == before
    for ref in server.project.branches():
        server.project.git("update-ref", "-d", ref)
    async with served(server.project, env={"AT": str(server.at)}) as undisturbed:
        kind = mutation["kind"]
        given = {key: value for key, value in mutation.items() if key != "kind"}
        again = await undisturbed.apply(kind, candidate=params["candidate"], name="r/1", **given)
    assert again.commit == made["commit"]
