"""A server as a plain process: ready after its ready line, its output read to the end, ended with the block."""

import os
import sys
from pathlib import Path

import pytest

from sandbox_runtime import ServerFailed, running_server
from tests.support.processes import is_running
from tests.support.waiting import until

READY = 'print(\'{"event": "ready", "url": "http://127.0.0.1:1/rpc", "token": "t"}\', flush=True)'


def program(*lines: str) -> list[str]:
    return [sys.executable, "-c", "\n".join(("import os, sys, time", *lines))]


def test_a_server_that_keeps_printing_is_not_blocked_by_a_full_pipe(tmp_path: Path) -> None:
    fifo = tmp_path / "done"
    os.mkfifo(fifo)
    flood = "print('x' * 1_000_000, flush=True)"
    with running_server(program(READY, flood, f"open({str(fifo)!r}, 'w').write('printed')", "time.sleep(60)")):
        assert fifo.read_text() == "printed"


def test_a_token_from_the_environment_need_not_be_printed() -> None:
    silent = READY.replace('"t"', "null")
    with running_server(program("print('[1]')", silent, "time.sleep(60)"), env={"GEPA_TOKEN": "given"}) as endpoint:
        assert (endpoint.url, endpoint.token) == ("http://127.0.0.1:1/rpc", "given")
    with pytest.raises(ServerFailed, match="no token"), running_server(program(silent), env={"GEPA_TOKEN": ""}):
        pass


def test_a_server_that_exits_or_is_late_is_an_error_with_its_last_output() -> None:
    with (
        pytest.raises(ServerFailed, match=r"(?s)status 3.*out of paper"),
        running_server(program("sys.stderr.write('out of paper')", "sys.exit(3)")),
    ):
        pass
    with (
        pytest.raises(ServerFailed, match=r"not ready within 0\.2 s"),
        running_server(program("time.sleep(60)"), ready_s=0.2),
    ):
        pass


def test_children_that_outlive_the_server_are_ended_with_it() -> None:
    ready = """print('{"event": "ready", "url": "%d", "token": "t"}' % pid, flush=True)"""
    with running_server(program("pid = os.fork()", f"if pid: {ready}", "time.sleep(60)")) as endpoint:
        orphan = int(endpoint.url)
    until(lambda: not is_running(orphan), 10)
