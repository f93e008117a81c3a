"""The warm parent: holds the imported program, forks a process for each one asked for, and reports how each ended."""

from __future__ import annotations

import array
import contextlib
import gc
import json
import os
import select
import signal
import socket
import warnings
from typing import Any, NamedTuple

from .leftovers import Leftovers
from .parent import die_with_parent

_DESCRIPTORS_EACH = 3  # stdin, stdout, stderr
_BEHIND = 10
"""By how much what is forked in a jail comes after the warm parent, which has to end it, and after the server."""

_MAX_AT_ONCE = 32 * _DESCRIPTORS_EACH


class Pipes(NamedTuple):
    """The three descriptors a new process was given."""

    stdin: int
    stdout: int
    stderr: int


class Zygote:
    """Serves the control socket: `{"fork": n}` with three descriptors, `{"kill": n}`; the end of input ends all.

    It alone signals and reaps its children, so a pid is never used after its process is gone. `leftovers`: where there
    are no processes but the program's own, what a child leaves behind is ended with it.
    """

    def __init__(self, control: socket.socket, leftovers: Leftovers | None = None) -> None:
        self._control = control
        self._leftovers = leftovers
        self._children: dict[int, int] = {}  # number -> pid
        self._descriptors: list[int] = []
        self._buffer = b""

    def run(self) -> Pipes | None:
        """In the parent: None, when the server is gone. In each forked child: its pipes."""
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

    def _fork(self, number: int) -> Pipes | None:
        pipes = Pipes(*self._descriptors[:_DESCRIPTORS_EACH])
        del self._descriptors[:_DESCRIPTORS_EACH]
        parent = os.getpid()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # threads of C libraries; they look after themselves
                pid = os.fork()
        except OSError as error:
            self._close(pipes)
            self._say({"exited": number, "status": None, "message": "cannot fork: %s" % error.strerror})
            return None
        if pid == 0:
            os.setpgid(0, 0)
            die_with_parent(parent)
            if self._leftovers is not None:
                os.nice(_BEHIND)
            for descriptor in self._descriptors:
                os.close(descriptor)
            return pipes
        with contextlib.suppress(OSError):  # it has ended already
            os.setpgid(pid, pid)  # both sides do it, whichever comes first, so that a kill finds the group
        self._children[number] = pid
        self._close(pipes)
        self._say({"forked": number, "pid": pid})
        return None

    def _close(self, pipes: Pipes) -> None:
        for descriptor in pipes:
            os.close(descriptor)

    def _kill(self, number: int) -> None:
        pid = self._children.get(number)
        if pid is not None:
            if self._leftovers is not None:
                self._leftovers.stop()  # until it is reaped: so many may run that it hardly comes to its end
            _kill_group(pid)

    def _reap(self) -> None:
        for number, pid in list(self._children.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done == 0:
                continue
            del self._children[number]
            _kill_group(pid)  # what it started itself; the number stays theirs while any of them lives
            if self._leftovers is not None:
                self._leftovers.end(self._children.values())
            code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
            self._say({"exited": number, "status": code})

    def _say(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the server is gone: the end of input says so next
            self._control.sendall(json.dumps(message).encode() + b"\n")


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # none of them is left
        os.killpg(pid, signal.SIGKILL)
