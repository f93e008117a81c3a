"""The supervisor's loop: receive orders, reap children, and end every container when the runtime ends.

`python -I -m sandbox_runtime.backends.bubblewrap.supervisor.daemon SOCKET RUNTIME_PID [MODULE]`
"""

import contextlib
import gc
import importlib
import json
import os
import resource
import selectors
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from sandbox_runtime.backends.bubblewrap.supervisor import forked_process, forks

MESSAGE_BYTES = 65536
DESCRIPTORS = 16
_UP = b"up"


class InForkedChild(BaseException):
    """Unwinds the daemon's loop in a forked process, and carries what that process has to do. Not an error."""

    def __init__(self, work: forked_process.Child) -> None:
        super().__init__()
        self.work = work


@dataclass
class _Container:
    """A container. `monitor`: bubblewrap's process. `finish_mounts`: the order for when it is up.

    `first`: the first process in it, as a pidfd; `process`: its folder in /proc, which always refers to it.
    """

    number: int
    monitor: int
    stdin: int
    finish_mounts: int
    log: int
    first: int | None = None
    process: int | None = None
    first_pid_known: bool = False
    stands: bool = False
    ending: bool = False
    reaped: bool = False


class SupervisorDaemon:
    """Makes, enters and ends containers as the runtime orders. Messages are JSON objects with descriptors beside them.

    From the runtime: `{"do": "start", "container"}` with two orders and a log; `{"do": "run", "container", "run"}` with
    an order and the command's descriptors; `{"do": "listen", "container", "run"}` with an order and a socket for the
    answer; `{"do": "stop", "run"}`; `{"do": "close", "container"}`. To the runtime: `{"container", "is": "up", "pid"}`;
    `{"container", "is": "gone"}` when nothing of it is left; `{"run", "status"}` when the command and, if it was alone,
    everything that it started has ended.
    """

    def __init__(self, wire: socket.socket, runtime: int) -> None:
        self._wire = wire
        self._pid = os.getpid()
        self._containers: dict[int, _Container] = {}
        self._runs: dict[int, int] = {}
        self._children: dict[int, Callable[[int], None]] = {}
        self._leaving = False
        self._ready = selectors.DefaultSelector()
        self._ready.register(wire, selectors.EVENT_READ, self._read_message)
        self._runtime = os.pidfd_open(runtime)
        self._ready.register(self._runtime, selectors.EVENT_READ, self._leave)
        woken, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.pthread_sigmask(
            signal.SIG_BLOCK, {signal.SIGTERM}
        )  # its forks wait for it, see `forked_process.wait_for`
        self._ready.register(woken, selectors.EVENT_READ, partial(self._reap, woken))

    def serve(self) -> None:
        """Serve until the runtime and every container have ended. Raises `InForkedChild` in forked processes."""
        while not self._leaving or self._containers or self._children:
            for key, _ in self._ready.select():
                if self._ready.get_map().get(key.fd) is key:  # else closed meanwhile, its number perhaps another's
                    key.data()

    def _read_message(self) -> None:
        try:
            message, descriptors, flags, _ = socket.recv_fds(
                self._wire, MESSAGE_BYTES, DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionError:
            message, descriptors, flags = b"", [], 0
        if not message:
            self._leave()
            return
        assert not flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC), "a message that did not fit"  # noqa: S101
        fields = json.loads(message)
        work = {
            "start": self._start,
            "run": self._run,
            "listen": self._listen,
            "stop": self._stop,
            "close": self._close,
        }[fields["do"]]
        try:
            work(fields, descriptors)
        except OSError as error:  # there is no process or descriptor left to be had: not the end of the others
            os.write(2, f"{fields['do']}: {error}\n".encode())
            if "run" in fields:
                self._send({"run": fields["run"], "status": forked_process.FAILED})
            else:
                self._send({"container": fields["container"], "is": "gone"})
        for descriptor in descriptors:  # not in a fork, which needs them and unwinds past here
            os.close(descriptor)

    def _start(self, fields: dict[str, Any], descriptors: list[int]) -> None:
        order, finish_mounts, log = descriptors
        opened: list[int] = []
        try:
            for _ in range(3):
                opened += os.pipe2(os.O_CLOEXEC)
            opened += (os.dup(finish_mounts), os.dup(log))
            stdin, hold, up, write_up, info, write_info, finish_mounts, kept_log = opened
            ends = forks.ContainerPipes(stdin=stdin, up=write_up, info=write_info, log=log)
            monitor = self._fork(
                [order, stdin, write_up, write_info, log],
                partial(forks.become_bubblewrap, order, ends, self._pid),
                lambda _: self._monitor_ended(container),
            )
        except OSError:
            for descriptor in opened:
                os.close(descriptor)
            raise
        container = _Container(fields["container"], monitor, hold, finish_mounts, kept_log)
        self._containers[container.number] = container
        for descriptor in (stdin, write_up, write_info):
            os.close(descriptor)
        self._read_all(info, partial(self._know_first, container))
        self._read_all(up, partial(self._standing, container))

    def _read_all(self, descriptor: int, done: Callable[[bytes], None]) -> None:
        """Read to the end, as bubblewrap requires, or until it reports that it is up, and call `done`."""
        text = b""

        def read() -> None:
            nonlocal text
            new = os.read(descriptor, 4096)
            text += new
            if not new or text.startswith(_UP):
                self._ready.unregister(descriptor)
                os.close(descriptor)
                done(text)

        self._ready.register(descriptor, selectors.EVENT_READ, read)

    def _know_first(self, container: _Container, text: bytes) -> None:
        """Store the first process: only a known one can be ended for certain; until then the monitor must live."""
        container.first_pid_known = True
        if text:  # else bubblewrap could not even begin
            pid = json.loads(text)["child-pid"]
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                container.process = os.open(f"/proc/{pid}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
                container.first = os.pidfd_open(pid)
                self._ready.register(container.first, selectors.EVENT_READ, partial(self._first_ended, container))
                if container.ending:
                    self._end(container)
        self._free(container)
        self._finish_mounts(container)

    def _standing(self, container: _Container, text: bytes) -> None:
        if text:
            container.stands = True
            self._finish_mounts(container)
        else:
            self._end(container)

    def _finish_mounts(self, container: _Container) -> None:
        """Finish the mounts once the first process is known and the container is up, in either order."""
        if not container.stands or container.process is None or container.ending:
            return

        def done(status: int) -> None:
            if status == 0 and not container.ending:
                self._send({"container": container.number, "is": "up", "pid": container.monitor})
            else:
                self._end(container)

        process, order = container.process, container.finish_mounts
        self._fork([process, order, container.log], partial(forks.finish_mounts, process, order, container.log), done)

    def _run(self, fields: dict[str, Any], descriptors: list[int]) -> None:
        order, *given = descriptors
        self._enter(fields, descriptors, lambda process: forks.run_command(process, order, given)())

    def _listen(self, fields: dict[str, Any], descriptors: list[int]) -> None:
        order, reply = descriptors
        self._enter(fields, descriptors, lambda process: forks.open_sockets(process, order, reply))

    def _enter(self, fields: dict[str, Any], descriptors: list[int], work: Callable[[int], None]) -> None:
        container, run = self._containers.get(fields["container"]), fields["run"]
        if container is None or container.process is None or container.ending:
            self._send({"run": run, "status": None})
            return
        process = container.process

        def done(status: int) -> None:
            del self._runs[run]
            self._send({"run": run, "status": status})

        self._runs[run] = self._fork([process, *descriptors], lambda: work(process), done)

    def _stop(self, fields: dict[str, Any], _: list[int]) -> None:
        if fields["run"] in self._runs:
            os.kill(self._runs[fields["run"]], signal.SIGTERM)

    def _close(self, fields: dict[str, Any], _: list[int]) -> None:
        container = self._containers.get(fields["container"])
        if container is None:
            self._send({"container": fields["container"], "is": "gone"})
        else:
            self._end(container)

    def _end(self, container: _Container) -> None:
        container.ending = True
        if container.first is not None:
            with contextlib.suppress(ProcessLookupError):  # its end is reported in a moment
                signal.pidfd_send_signal(container.first, signal.SIGKILL)

    def _first_ended(self, container: _Container) -> None:
        assert container.first is not None  # noqa: S101  it is what was waited for
        container.ending = True
        self._ready.unregister(container.first)
        os.close(container.first)
        container.first = None
        self._free(container)

    def _monitor_ended(self, container: _Container) -> None:
        container.ending = container.reaped = True
        self._free(container)

    def _free(self, container: _Container) -> None:
        if (
            container.first is None
            and container.first_pid_known
            and container.reaped
            and container.number in self._containers
        ):
            for descriptor in (container.stdin, container.finish_mounts, container.log, container.process):
                if descriptor is not None:
                    os.close(descriptor)
            del self._containers[container.number]
            self._send({"container": container.number, "is": "gone"})

    def _leave(self) -> None:
        """End everything: the runtime has ended."""
        self._leaving = True
        for source in (self._wire, self._runtime):
            with contextlib.suppress(KeyError):  # the end may be noticed by either, or both
                self._ready.unregister(source)
        for container in list(self._containers.values()):
            self._end(container)

    def _fork(self, kept: list[int], work: forked_process.Child, done: Callable[[int], None]) -> int:
        """Run `work` in a process that has only the descriptors `kept`; `done` gets its exit status."""
        child = os.fork()
        if child == 0:
            signal.set_wakeup_fd(-1)
            self._ready.close()  # both objects would close a descriptor of the same number later
            self._wire.detach()
            forked_process.close_all_but(kept)
            raise InForkedChild(work)
        self._children[child] = done
        return child

    def _reap(self, woken: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(woken, 4096)
        while self._children:
            child, status = os.waitpid(-1, os.WNOHANG)
            if child == 0:
                return
            done = self._children.pop(child, None)
            if done is not None:  # else an orphan that was adopted
                done(forked_process.exit_status(status))

    def _send(self, message: dict[str, Any]) -> None:
        if not self._leaving:
            with contextlib.suppress(ConnectionError):  # noticed by the next `_read_message`
                self._wire.sendall(json.dumps(message).encode())


def serve(wire: int, runtime: int) -> None:
    """Serve on the socket of this descriptor, in a process of a single thread; its forks return when they are done."""
    assert len(os.listdir("/proc/self/task")) == 1, "a thread would not survive a fork"  # noqa: S101, PTH208
    forked_process.adopt_orphans()
    forked_process.leave_keyring()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # it holds some for each sandbox
    work: forked_process.Child | None = None
    try:
        SupervisorDaemon(socket.socket(fileno=wire), runtime).serve()
    except InForkedChild as unwound:
        work = unwound.work
    if work is not None:
        work()


def main(arguments: list[str]) -> None:
    """Serve on the socket; `MODULE` is imported first, for servers that are forked from here."""
    wire, runtime, *modules = arguments
    gc.disable()  # looking for garbage takes a fifth of the imports' time
    for module in modules:
        importlib.import_module(module)
    gc.enable()
    gc.collect()
    gc.freeze()  # so that its forks share these objects' memory
    serve(int(wire), int(runtime))


if __name__ == "__main__":
    main(sys.argv[1:])
