"""Processes: identify one so that a later one can be certain that it has ended; handle signals during a block."""

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict


class ProcessIdentity(BaseModel):
    """A process. `started`: in clock ticks since boot, field 22 of /proc/PID/stat, because pids are reused.

    `boot_id` and `pid_namespace` identify the pid's namespace, `hostname` the machine.
    """

    model_config = ConfigDict(frozen=True)

    pid: int
    started: int
    boot_id: str
    pid_namespace: str
    hostname: str

    @classmethod
    def this_process(cls) -> "ProcessIdentity":
        """Return the identity of this process."""
        started = started_at(os.getpid())
        assert started is not None, "this process runs"  # noqa: S101
        return cls(pid=os.getpid(), started=started, hostname=socket.gethostname(), **_where())

    def is_gone(self) -> bool:
        """Return whether it has certainly ended; False if that is unknown here (another machine, a container)."""
        here = _where()
        if self.boot_id != here["boot_id"]:
            return self.hostname == socket.gethostname()  # this machine, started anew since
        return self.pid_namespace == here["pid_namespace"] and started_at(self.pid) != self.started

    def __str__(self) -> str:
        return f"process {self.pid} on {self.hostname}"


def started_at(pid: int) -> int | None:
    """Return when the process was started, in clock ticks since boot; None if it has ended, waited for or not."""
    try:
        # What stands before the last bracket is the program's name, and may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def _where() -> dict[str, str]:
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return {"boot_id": boot_id, "pid_namespace": str(Path("/proc/self/ns/pid").readlink())}


@contextmanager
def signals_handled(
    handler: Callable[[int, Any], object] | signal.Handlers, *numbers: signal.Signals
) -> Iterator[None]:
    """Handle these signals so while the block runs, and as before it afterwards. Used in the main thread."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
