"""`evolverpc serve --trees` as a process: its events, its files after a kill, and several servers at once."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox_runtime import ServerEndpoint, running_server
from tests.rpc_server.mutations.project import Project
from tests.support.forked_client import ForkServer
from tests.support.processes import processes_with
from tests.support.waiting import until

MARK = "TREES_TEST_MARK"


@contextmanager
def served(project: Project, state: Path, fork_server: ForkServer | None = None) -> Iterator[ServerEndpoint]:
    """Run a server as a user does, or a fork."""
    arguments = ["--trees", "--program", "app.py", "--python", sys.executable, "--tree-dir", str(state)]
    arguments += ["--workers", "1"]
    env = {MARK: str(state)}
    with (
        running_server([sys.executable, "-m", "rpc_server", *arguments], cwd=project.folder, env=env)
        if fork_server is None
        else fork_server.running_server(*arguments, cwd=project.folder, env=env)
    ) as endpoint:
        yield endpoint


def test_a_killed_server_leaves_nothing_once_the_next_one_has_started(
    project: Project, tmp_path: Path, fork_server: ForkServer
) -> None:
    state = tmp_path / "state"
    before = project.digest()
    with served(project, state) as endpoint:
        (folder,) = (state / "servers").iterdir()
        assert len(list((folder / "trees").iterdir())) == 1
        os.kill(endpoint.pid, signal.SIGKILL)
        until(lambda: not processes_with(f"{MARK}={state}"))
    assert folder.is_dir()
    with served(project, state, fork_server):
        assert not folder.exists()
        assert len(list((state / "servers").iterdir())) == 1
    assert list((state / "servers").iterdir()) == []
    assert project.digest() == before
