"""A real Ray cluster on this machine that asks for a token. A node is `ray start` and what that starts."""

import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from evolverpc_common.network_addresses import free_port
from tests.support.processes import is_running, processes_with
from tests.support.waiting import until

RAY = Path(sys.executable).with_name("ray")
REPOSITORY = Path(__file__).parents[3]
NODE = "TEST_RAY_NODE"
"""A variable that all processes of a node have."""


@dataclass
class RayCluster:
    """`folder`: of its files, with a short path, as sockets are among them. `port`: of its head, which nodes join."""

    folder: Path
    port: int
    client_port: int

    @property
    def address(self) -> str:
        return f"ray://127.0.0.1:{self.client_port}"

    @property
    def variables(self) -> dict[str, str]:
        """Of Ray's programs, and of a dispatcher."""
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.folder / "token")}

    def head(self, cpus: int = 4) -> None:
        server = f"--ray-client-server-port={self.client_port}"
        self._start("head", cpus, "--head", f"--port={self.port}", server, "--include-dashboard=false")

    def node(self, name: str, cpus: int = 4) -> None:
        self._start(name, cpus, f"--address=127.0.0.1:{self.port}")

    def lose(self, name: str) -> None:
        """Kill all processes of a node, as the loss of its machine does."""
        _kill(self._mark(name))

    def node_of(self, pid: int) -> str | None:
        """The node that a process belongs to; None if it belongs to none, or has ended."""
        try:
            held = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return None
        prefix = f"{NODE}={self.folder.name}-".encode()
        return next((each.removeprefix(prefix).decode() for each in held if each.startswith(prefix)), None)

    def _mark(self, name: str) -> str:
        return f"{NODE}={self.folder.name}-{name} "

    def _start(self, name: str, cpus: int, *options: str) -> None:
        command = [RAY, "start", *options, f"--num-cpus={cpus}", "--node-ip-address=127.0.0.1", "--disable-usage-stats"]
        named = {
            NODE: self._mark(name).partition("=")[2].strip(),
            "RAY_TMPDIR": str(self.folder),
            "PYTHONPATH": str(REPOSITORY),
            "RAY_worker_niceness": "0",  # by default 15: beside other tests, an attempt would hardly run
        }
        log = self.folder / f"{name}.log"
        with log.open("wb") as output:
            done = subprocess.run(
                command, stdout=output, stderr=output, env={**os.environ, **self.variables, **named}, timeout=200
            )
        assert done.returncode == 0, log.read_text()


@contextmanager
def ray_cluster(cpus: int = 4) -> Iterator[RayCluster]:
    """A cluster that ends with the block. `cpus`: of its head."""
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp", ignore_cleanup_errors=True) as folder:
        made = RayCluster(Path(folder), free_port(), free_port())
        (made.folder / "token").write_text(secrets.token_hex(32))
        try:
            made.head(cpus)
            yield made
        finally:
            _kill(f"{NODE}={made.folder.name}-")


def _kill(mark: str) -> None:
    """Kill the processes with a variable, and those that they started: Ray's agents overwrite theirs by their title."""
    while found := set(processes_with(mark)):
        parents = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it has ended
                parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        while more := {pid for pid, parent in parents.items() if parent in found and pid not in found}:
            found |= more
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not any(is_running(pid) for pid in found))  # noqa: B023  it is called here
