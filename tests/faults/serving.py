"""The real `evolverpc serve` in front of the program, which can be killed and comes back at the same address."""

import contextlib
import os
import signal
import sys
from pathlib import Path

from sandbox_runtime import ServerEndpoint, running_server
from tests.faults import execution_log
from tests.support.forked_client import ForkServer

TOKEN = "token-of-the-faults"
SERVED = Path(__file__).parent / "served"
PROCESSES = 4
"""Program processes, each with one example at a time: the server's `max_concurrency`."""

APART_S = 0.3
"""Seconds between two kills of program processes: an example two of whose processes die is taken to kill them."""


class Server:
    """One server; leaving its `with` block ends it. `fork_server`: makes it a fork."""

    def __init__(self, components: int, fork_server: ForkServer | None) -> None:
        self._components = components
        self._fork_server = fork_server
        self._stack = contextlib.ExitStack()
        self.endpoint: ServerEndpoint = self._start(0)

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        """Where it answers, now and after it was killed."""
        return self.endpoint.url

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.url.rpartition(":")[2].partition("/")[0])

    def kill(self) -> None:
        """`kill -9` of the server's own process; its program's processes notice by themselves."""
        os.kill(self.endpoint.pid, signal.SIGKILL)
        self._stack.close()

    def start_again(self) -> None:
        """Another process, another instance, the same address."""
        self.endpoint = self._start(self.port)

    def kill_a_program_process(self, choice: float) -> bool:
        """`kill -9` of one of the processes below the server; `choice` from 0 to 1 selects it."""
        below = sorted(execution_log.descendants(self.endpoint.pid))
        if not below:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(below[int(choice * len(below))], signal.SIGKILL)
            return True
        return False

    def _start(self, port: int) -> ServerEndpoint:
        program = str(SERVED / "logging_program.py")
        arguments = [
            "--json", "--root", str(SERVED), "--program", program,
            "--python", sys.executable, "--workers", str(PROCESSES), "--port", str(port),
            "--concurrency", str(PROCESSES),
            "--env", f"FAULTS_COMPONENTS={self._components}",
        ]  # fmt: skip
        env = {"GEPA_TOKEN": TOKEN}
        if self._fork_server is not None:
            return self._stack.enter_context(self._fork_server.running_server(*arguments, env=env))
        return self._stack.enter_context(running_server([sys.executable, "-m", "rpc_server", *arguments], env=env))
