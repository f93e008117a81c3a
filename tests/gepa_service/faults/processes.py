"""The processes of a service, each of which may be killed at any moment and is started again."""

import base64
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from evolverpc_common.network_addresses import free_port
from gepa_service.cli.arguments import LOCAL
from tests.gepa_service.engines.ray_cluster import RayCluster
from tests.gepa_service.platform import MASTER, working_in
from tests.support.processes import command_of

ROOT = Path(__file__).parents[3]
PROCESSES = {"job process": b"gepa_service.jobs.process_main", "driver": b"gepa_client.run.driver_main"}
"""Processes of a work that are killed, each with a part of its command."""

DISPATCHERS = 2
AT_ONCE = 4
"""Attempts of each lane, and on a node."""


@dataclass
class Processes:
    """An API and two dispatchers, of which one works. `reached_at`: the port by which works reach the API.

    `cluster`: where attempts run, of two nodes besides its head; None: beside their dispatcher.
    """

    folder: Path
    records: str
    journals: str
    sandbox: str = "process"
    port: int = field(default_factory=free_port)
    reached_at: int | None = None
    cluster: RayCluster | None = None
    _running: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def __enter__(self) -> "Processes":
        (self.folder / "key").write_bytes(base64.b64encode(MASTER))
        (self.folder / "key").chmod(0o600)
        for name in ("api", *(f"dispatcher {number}" for number in range(DISPATCHERS))):
            self.start(name)
        return self

    def __exit__(self, *_: object) -> None:
        for name, process in self._running.items():
            process.send_signal(signal.SIGTERM if name != "api" else signal.SIGCONT)
        for name, process in self._running.items():
            if name != "api":
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(60)
            process.kill()
            process.wait()

    def start(self, name: str) -> None:
        flags = (
            ["--port", str(self.port)]
            if name == "api"
            else [
                *("--api", f"http://127.0.0.1:{self.reached_at or self.port}", "--jobs", str(AT_ONCE)),
                *("--folder", str(self.folder / name.replace(" ", "-")), "--sandbox", self.sandbox),
                *("--engine", LOCAL if self.cluster is None else self.cluster.address),
            ]
        )
        common = ["--database", self.records, "--journals", self.journals, "--allow-local"]
        common += ["--allow-network", "127.0.0.0/8"]
        command = ["-m", "gepa_service.cli", name.partition(" ")[0]]
        with (self.folder / f"{name.replace(' ', '-')}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [sys.executable, *command, *common, *flags],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={
                    **os.environ,
                    **({} if self.cluster is None else self.cluster.variables),
                    "GEPA_SERVICE_MASTER_KEY_FILE": str(self.folder / "key"),
                },
            )

    @property
    def names(self) -> list[str]:
        return list(self._running)

    def kill(self, *names: str) -> None:
        """Kill these processes by SIGKILL at once, and start them again."""
        for name in names:
            self._running[name].kill()
        for name in names:
            self._running[name].wait()
        for name in names:
            self.start(name)

    def start_ended(self) -> int:
        """Start those again that have ended by themselves, because their database was away; return how many."""
        ended = [name for name, process in self._running.items() if process.poll() is not None]
        for name in ended:
            self.start(name)
        return len(ended)

    def kill_of_work(self, victim: str, random: Random) -> bool:
        """Kill one of `PROCESSES` by SIGKILL, which its attempt notices; return whether there was one."""
        found = self.victims(victim)
        if not found:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(random.choice(found), signal.SIGKILL)
            return True
        return False

    def lose_node(self, random: Random) -> bool:
        """Lose a node on which a work runs, and add another; return whether there was one."""
        assert self.cluster is not None
        pids = {pid for victim in self.victims("job process") for pid in lineage_of(victim)}
        nodes = sorted({node for pid in pids if (node := self.cluster.node_of(pid)) is not None})
        if not nodes:
            return False
        node = random.choice(nodes)
        self.cluster.lose(node)
        self.cluster.node(node)
        return True

    def victims(self, victim: str) -> list[int]:
        """The processes of `PROCESSES`, those in containers too, which have another folder."""
        own = set(working_in(f"{self.folder}/dispatcher-"))
        present = [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]
        return [pid for pid in present if PROCESSES[victim] in command_of(pid) and own & lineage_of(pid)]

    def logs(self) -> str:
        return "\n".join(f"--- {path.name}\n{path.read_text()[-1500:]}" for path in sorted(self.folder.glob("*.log")))


def lineage_of(pid: int) -> set[int]:
    """A process and those that it descends from."""
    found = set()
    while pid > 1:
        found.add(pid)
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break
    return found


def listening(port: int, timeout_s: float = 240.0) -> None:
    until = time.monotonic() + timeout_s
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        assert time.monotonic() < until, f"nothing listens on port {port}"
        time.sleep(0.05)
