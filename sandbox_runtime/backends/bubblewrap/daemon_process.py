"""Start the supervisor daemon: a new interpreter, or a fork of a process that has imported what its own forks run."""

import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import IO, Protocol

from sandbox_runtime.backends.bubblewrap.supervisor import daemon, forked_process

_MODULE = "sandbox_runtime.backends.bubblewrap.supervisor.daemon"


class DaemonProcess(Protocol):
    """The process of a daemon, as `subprocess.Popen` is one."""

    pid: int

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit status. Raises `subprocess.TimeoutExpired`."""
        ...

    def kill(self) -> None:
        """Kill it."""
        ...


@dataclass(frozen=True)
class Daemon:
    """A daemon that runs. `wire`: the socket by which it gets its orders. `log`: a file with what it printed."""

    process: DaemonProcess
    wire: socket.socket
    log: IO[bytes]


def execute_daemon(preload: str | None) -> Daemon:
    """Start it in a new interpreter. `preload`: a module that it imports before it forks. Raises `OSError`."""
    wire, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    log = tempfile.TemporaryFile()  # noqa: SIM115  closed by its client
    with theirs:
        arguments = [str(theirs.fileno()), str(os.getpid()), *([preload] if preload else [])]
        process = subprocess.Popen(  # noqa: S603  this interpreter, no shell
            [sys.executable, "-I", "-m", _MODULE, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env={"LANG": "C.UTF-8", "PATH": os.defpath},
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    return Daemon(process, wire, log)


def fork_daemon() -> Daemon | Callable[[], None]:
    """Fork it from this process, which has a single thread and holds nothing that a container may not see.

    Return it; in the forked process, return what that must do as the last thing of its main program. Raises `OSError`.
    """
    runtime = os.getpid()
    wire, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    log = os.memfd_create("log", os.MFD_CLOEXEC)
    child = os.fork()
    if child == 0:
        wire.detach()  # the object would close a descriptor of the same number later
        own = theirs.detach()
        _be_a_daemon(own, log)
        return partial(daemon.serve, own, runtime)
    theirs.close()
    return Daemon(_ForkedProcess(child), wire, os.fdopen(log, "r+b"))


def _be_a_daemon(wire: int, log: int) -> None:
    os.setsid()
    os.chdir("/")
    for number, descriptor in enumerate((os.open(os.devnull, os.O_RDONLY), log, log)):
        os.dup2(descriptor, number)
    forked_process.close_all_but([wire])
    os.environ.clear()
    os.environ.update({"LANG": "C.UTF-8", "PATH": os.defpath})


class _ForkedProcess:
    """A child of this process, which nothing else waits for."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._status: int | None = None
        self._ended = os.pidfd_open(pid)

    def wait(self, timeout: float | None = None) -> int:
        if self._status is None:
            ending = select.poll()
            ending.register(self._ended, select.POLLIN)
            if not ending.poll(None if timeout is None else 1000 * timeout):
                raise subprocess.TimeoutExpired(_MODULE, timeout or 0.0)
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            os.close(self._ended)
        return self._status

    def kill(self) -> None:
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)
