"""The warm parent: it holds the imported program, forks processes on request, and reaps them."""

from __future__ import annotations

import array
import contextlib
import gc
import json
import os
import select
import signal
import socket
import threading
import time
import warnings
from typing import Any, Collection, NamedTuple

from .parent_death import adopt_orphans, die_with_parent

_ALL = -1  # every process but the jail's first and the caller
_AT_MOST_S = 5.0
_ROUND_S = 0.002


class ProcessReaper:
    """Ends what examples leave behind, in a jail, where every visible process is the program's own.

    A process whose parent has ended belongs to no example. It becomes a child of this process, as are those that it had
    at the beginning and the known ones that it forks, which stay.
    """

    def __init__(self) -> None:
        adopt_orphans()
        self._initial = _children()
        self._stopped = False

    def stop(self) -> None:
        """Stop every other process until `end` is over."""
        self._stopped = True
        _signal(_ALL, signal.SIGSTOP)

    def end(self, known: Collection[int]) -> None:
        """Kill all leftovers, with what they started.

        All processes are stopped meanwhile: running ones would fork more, and leave this process no time.
        """
        begun = time.monotonic()
        if not self._stopped:
            if not self.find_leftovers(known):
                return
            self.stop()
        try:
            while found := self.find_leftovers(known):
                if time.monotonic() > begun + _AT_MOST_S:
                    _signal(_ALL, signal.SIGKILL)  # the known ones too, which are started again
                    return
                for pid in found:
                    _signal(pid, signal.SIGKILL)
                time.sleep(_ROUND_S)  # the kernel needs a moment to end them
        finally:
            self._stopped = False
            _signal(_ALL, signal.SIGCONT)

    def find_leftovers(self, known: Collection[int]) -> list[int]:
        """Return the pids of those that run; those that have ended are reaped."""
        adopted = _children() - self._initial - {*known}
        return [pid for pid in adopted if os.waitpid(pid, os.WNOHANG)[0] == 0]


def _children() -> set[int]:
    own, found = os.getpid(), set()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open("/proc/%s/stat" % name, "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
        except OSError:
            continue  # it has just ended
        if parent == own:
            found.add(int(name))
    return found


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it has just ended
        os.kill(pid, number)


_DESCRIPTORS_EACH = 3  # stdin, stdout, stderr
_NICENESS = 10
"""Added to the niceness of jailed forks, so that the warm parent and the server stay responsive."""

_MAX_AT_ONCE = 32 * _DESCRIPTORS_EACH


def may_fork() -> bool:
    """Report whether a fork is safe: a forked process keeps only the thread that forked."""
    return hasattr(os, "fork") and threading.active_count() == 1


class ForkPipes(NamedTuple):
    """The three descriptors of a new process."""

    stdin: int
    stdout: int
    stderr: int


class Zygote:
    """Serves the control socket: `{"fork": n}` with three descriptors, `{"kill": n}`; the end of input ends all.

    Only it signals and reaps its children, so that no pid is used after its process is gone. `reaper`: in a jail, ends
    what a child leaves behind.
    """

    def __init__(self, control: socket.socket, reaper: ProcessReaper | None = None) -> None:
        self._control = control
        self._reaper = reaper
        self._children: dict[int, int] = {}  # number -> pid
        self._descriptors: list[int] = []
        self._buffer = b""

    def run(self) -> ForkPipes | None:
        """In the parent: return None when the server is gone. In each forked child: return its pipes."""
        gc.collect()
        gc.freeze()  # collections in a child would copy the pages it shares with this process
        wake_reader, wake_writer = os.pipe()
        for descriptor in (wake_reader, wake_writer):
            os.set_blocking(descriptor, False)
        handler = signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        control = self._control.fileno()
        while True:
            ready, _, _ = select.select([control, wake_reader], [], [])
            if wake_reader in ready:
                os.read(wake_reader, 4096)
                self._reap()
            if control not in ready:
                continue
            messages = self._receive()
            if messages is None:
                for number in list(self._children):
                    self._kill(number)
                return None
            for message in messages:
                if "kill" in message:
                    self._kill(message["kill"])
                    continue
                pipes = self._fork(message["fork"])
                if pipes is not None:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, handler or signal.SIG_DFL)
                    os.close(wake_reader)
                    os.close(wake_writer)
                    self._control.close()
                    return pipes

    def _receive(self) -> list[dict[str, Any]] | None:
        descriptors = array.array("i")
        data, ancillary, _, _ = self._control.recvmsg(1 << 16, socket.CMSG_SPACE(_MAX_AT_ONCE * descriptors.itemsize))
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptors.frombytes(payload[: len(payload) - len(payload) % descriptors.itemsize])
        self._descriptors.extend(descriptors)
        if not data:
            return None
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def _fork(self, number: int) -> ForkPipes | None:
        pipes = ForkPipes(*self._descriptors[:_DESCRIPTORS_EACH])
        del self._descriptors[:_DESCRIPTORS_EACH]
        parent = os.getpid()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # threads of C libraries handle forks themselves
                pid = os.fork()
        except OSError as error:
            self._close(pipes)
            self._send({"exited": number, "status": None, "message": "cannot fork: %s" % error.strerror})
            return None
        if pid == 0:
            os.setpgid(0, 0)
            die_with_parent(parent)
            if self._reaper is not None:
                os.nice(_NICENESS)
            for descriptor in self._descriptors:
                os.close(descriptor)
            return pipes
        with contextlib.suppress(OSError):  # it has ended already
            os.setpgid(pid, pid)  # both sides do it, whichever comes first, so that a kill finds the group
        self._children[number] = pid
        self._close(pipes)
        return None

    def _close(self, pipes: ForkPipes) -> None:
        for descriptor in pipes:
            os.close(descriptor)

    def _kill(self, number: int) -> None:
        pid = self._children.get(number)
        if pid is not None:
            if self._reaper is not None:
                self._reaper.stop()  # until it is reaped: its descendants may use all processor time
            _kill_group(pid)

    def _reap(self) -> None:
        for number, pid in list(self._children.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done == 0:
                continue
            del self._children[number]
            _kill_group(pid)  # its own children; the group id is theirs while one of them lives
            if self._reaper is not None:
                self._reaper.end(self._children.values())
            code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
            self._send({"exited": number, "status": code})
        if self._reaper is not None:
            self._reaper.find_leftovers(self._children.values())

    def _send(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the server is gone, which the end of input shows next
            self._control.sendall(json.dumps(message).encode() + b"\n")


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # none of them is left
        os.killpg(pid, signal.SIGKILL)
