"""`evolverpc sandboxes exec`: a command in a running sandbox of another process."""

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gepa_client.sandboxing import remote_exec
from sandbox_runtime import SandboxError
from tests.gepa_client.cli.sandboxed_program import PROGRAM, Place, place
from tests.gepa_client.started_command import StartedCommand
from tests.support.forked_client import ForkServer

WAIT_S = 60.0


@pytest.fixture(scope="module")
def place_with_a_run(tmp_path_factory: pytest.TempPathFactory, fork_server: ForkServer) -> Iterator[tuple[Place, str]]:
    """A run that stays busy, and the id of one of its sandboxes."""
    folder: Path = tmp_path_factory.mktemp("place")
    with place(
        folder, fork_server, {"waits": {"words.py": PROGRAM.replace("time.sleep(0.005)", "time.sleep(600)")}}
    ) as here:
        arguments = [str(word) for word in (*here.optimize("out", "waits"), "--sandboxes", 1)]
        process = StartedCommand(fork_server, arguments, folder=folder, environment=here.env)
        try:
            for line in process.lines:
                if json.loads(line)["event"] == "started":
                    break
            else:
                pytest.fail(process.errors.read())
            yield here, here.sandboxes()[0]["id"]
        finally:
            process.kill()
            process.communicate(WAIT_S)
            here.run("sandboxes", "--sweep")
            for pid in here.processes():
                os.kill(pid, signal.SIGKILL)


def test_outputs_and_status_are_those_of_the_command(place_with_a_run: tuple[Place, str]) -> None:
    here, sandbox = place_with_a_run
    done = here.run("sandboxes", "exec", sandbox, "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.status, done.stdout, done.stderr) == (7, "out\n", "err\n")
    done = here.run("sandboxes", "exec", sandbox, "--json", "--", "printf", "a b")
    result = json.loads(done.stdout)
    assert (result["status"], result["stdout"], result["stderr"]) == (0, "a b", "")


def test_a_command_that_takes_too_long_is_ended(place_with_a_run: tuple[Place, str]) -> None:
    here, sandbox = place_with_a_run
    done = here.run("sandboxes", "exec", sandbox, "--timeout", 0.5, "--", "sleep", "60")
    assert done.status == 124
    assert "--timeout SECONDS allows more" in done.stderr


def test_an_unknown_sandbox_and_an_incomplete_command_are_refused(place_with_a_run: tuple[Place, str]) -> None:
    here, sandbox = place_with_a_run
    unknown = here.run("sandboxes", "exec", "nosuch", "--", "true")
    assert unknown.status == 2
    assert "no active run has a sandbox nosuch: `evolverpc sandboxes` lists their ids" in unknown.stderr
    incomplete = here.run("sandboxes", "exec", sandbox)
    assert incomplete.status == 2
    assert "give `exec ID -- COMMAND`" in incomplete.stderr


async def test_a_session_that_ends_while_the_command_runs_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.close()

    monkeypatch.setattr(remote_exec, "endpoints_folders", lambda: [tmp_path / "ended", tmp_path])
    async with await asyncio.start_unix_server(end, tmp_path / remote_exec.SOCKET):
        with pytest.raises(SandboxError, match="sandbox s1 ended while the command ran"):
            await remote_exec.exec_in_sandbox(remote_exec.ExecRequest(id="s1", argv=("sleep", "9"), timeout_s=9.0))
