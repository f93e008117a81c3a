"""The runtime's connection to its supervisor daemon: start it, send it orders and inputs, receive the outcomes."""

import asyncio
import fcntl
import json
import os
import socket
import subprocess
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sandbox_runtime.api.sandbox import RuntimeInterrupted, SandboxError, SandboxGone
from sandbox_runtime.api.spec import Command
from sandbox_runtime.backends.bubblewrap.daemon_process import execute_daemon
from sandbox_runtime.backends.bubblewrap.supervisor.daemon import MESSAGE_BYTES

_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
_INPUT_PIECE_BYTES = 1024 * 1024


def written(order: Mapping[str, Any]) -> int:
    """Return the descriptor of a file with the order in it; the caller closes it."""
    return in_memory(json.dumps(order).encode())


def in_memory(content: bytes) -> int:
    """Return the descriptor of a file in memory with this content, at its beginning."""
    descriptor = os.memfd_create("order", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(content)
        os.lseek(descriptor, 0, os.SEEK_SET)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@dataclass(frozen=True)
class ContainerEntry:
    """How a process enters a container: as which user of the host (None: this one), by which `cgroup.procs`."""

    user: int | None
    groups: Sequence[str]


@dataclass(frozen=True)
class CommandOrder:
    """An order to run a command: see `forks.run_command`."""

    argv: Sequence[str]
    cwd: str
    env: Mapping[str, str]
    limits: Mapping[str, int]
    alone: bool
    warm: tuple[str, str] | None = None

    def written(self, entry: ContainerEntry) -> int:
        """Return the descriptor of a file with it."""
        return written({**asdict(entry), **asdict(self)})


_LOG_TAIL_BYTES = 4096
_END_S = 10.0


class SupervisorClient:
    """One supervisor daemon, used in one event loop.

    `preload`: a module that the daemon imports before it forks.
    """

    def __init__(self, preload: str | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._numbers = 0
        self._up: dict[int, asyncio.Future[int]] = {}
        self._gone: dict[int, asyncio.Future[None]] = {}
        self._runs: dict[int, asyncio.Future[int]] = {}
        self._sending = asyncio.Lock()
        self.lost: asyncio.Future[str] = self._loop.create_future()
        """Done when the daemon has ended and every sandbox with it: the end of what it wrote."""
        started = execute_daemon(preload)
        self._process, self._wire, self._log = started.process, started.wire, started.log
        self._wire.setblocking(False)
        self._loop.add_reader(self._wire, self._read_messages)

    @property
    def pid(self) -> int:
        """The daemon's pid."""
        return self._process.pid

    def number(self) -> int:
        """Return a number that no other container or command of this client has."""
        self._numbers += 1
        return self._numbers

    async def start(self, container: int, orders: Sequence[int]) -> int:
        """Start a container; return the pid of bubblewrap. `orders`: to start, to finish the mounts, and the log.

        Raises:
            SandboxError: it cannot be started; the log has the reason. `gone` returns when nothing of it is left.
        """
        up: asyncio.Future[int] = self._loop.create_future()
        self._up[container], self._gone[container] = up, self._loop.create_future()
        try:
            try:
                await self._send({"do": "start", "container": container}, orders)
            except SandboxError:  # the daemon has ended, and got no order
                del self._gone[container]
                raise
            return await up
        finally:
            del self._up[container]

    async def gone(self, container: int) -> None:
        """Wait until nothing of it is left."""
        if container in self._gone:
            await asyncio.shield(self._gone[container])

    async def close(self, container: int) -> None:
        """End it, and wait until nothing of it is left."""
        if container in self._gone and not self._gone[container].done():
            with suppress(SandboxError):  # then the daemon has ended, and all with it
                await self._send({"do": "close", "container": container})
        await self.gone(container)
        self._gone.pop(container, None)

    async def run(self, container: int, run: int, descriptors: Sequence[int]) -> "asyncio.Future[int]":
        """Start a command; its status, or `SandboxGone`, comes later.

        `descriptors`: that of the order, then the command's own.
        """
        return await self._ask({"do": "run", "container": container, "run": run}, descriptors)

    async def stop(self, run: int) -> None:
        """Kill a command, and everything that it started if it is alone; `run` reports it then."""
        if run in self._runs:
            await self._send({"do": "stop", "run": run})

    async def listen(self, container: int, order: int, count: int) -> list[socket.socket]:
        """Return `count` sockets that listen in the container's network. Raises `SandboxGone`, `SandboxError`."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            with theirs:
                message = {"do": "listen", "container": container, "run": self.number()}
                asked = await self._ask(message, [order, theirs.fileno()])
            status = await asked
            ours.setblocking(False)
            reply, descriptors, _, _ = socket.recv_fds(ours, MESSAGE_BYTES, count, socket.MSG_CMSG_CLOEXEC)
        if status != 0:
            raise SandboxError(f"cannot listen in the sandbox: {reply.decode('utf-8', 'replace').strip()}")
        return [socket.socket(fileno=descriptor) for descriptor in descriptors]

    async def leave(self) -> None:
        """End the daemon, and every container that is left."""
        with suppress(OSError):
            self._wire.shutdown(socket.SHUT_RDWR)
        try:
            await asyncio.to_thread(self._process.wait, _END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # the kernel ends its sandboxes
            await asyncio.to_thread(self._process.wait)
        finally:
            self._lose()
            self._log.close()

    async def _ask(self, message: dict[str, Any], descriptors: Sequence[int]) -> "asyncio.Future[int]":
        """Send a message; its status comes later."""
        ended: asyncio.Future[int] = self._loop.create_future()
        self._runs[message["run"]] = ended
        try:
            await self._send(message, descriptors)
        except BaseException:
            self._runs.pop(message["run"], None)
            ended.cancel()  # `_lose` may have given it its error, which is being raised
            raise
        return ended

    async def _send(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        text = json.dumps(message).encode()
        async with self._sending:
            while True:
                if self.lost.done():
                    raise RuntimeInterrupted(f"the process that keeps the sandboxes has ended\n{self.lost.result()}")
                try:
                    socket.send_fds(self._wire, [text], list(descriptors))
                    return
                except BlockingIOError:
                    await self._writable()
                except OSError:
                    self._lose()

    async def _writable(self) -> None:
        ready = asyncio.Event()
        self._loop.add_writer(self._wire, ready.set)
        try:
            await ready.wait()
        finally:
            self._loop.remove_writer(self._wire)

    def _read_messages(self) -> None:
        while True:
            try:
                message = self._wire.recv(MESSAGE_BYTES)
            except BlockingIOError:
                return
            except OSError:
                message = b""
            if not message:
                self._lose()
                return
            self._receive(json.loads(message))

    def _receive(self, reply: dict[str, Any]) -> None:
        if "run" in reply:
            ended = self._runs.pop(reply["run"], None)
            if ended is None or ended.done():
                return  # the caller did not wait
            if reply["status"] is None:
                ended.set_exception(SandboxGone("the sandbox has ended"))
            else:
                ended.set_result(reply["status"])
            return
        container = reply["container"]
        up = self._up.get(container)
        if reply["is"] == "up":
            if up is not None and not up.done():
                up.set_result(reply["pid"])
            return
        if up is not None and not up.done():
            up.set_exception(SandboxError("bubblewrap could not make the sandbox"))
        if container in self._gone and not self._gone[container].done():
            self._gone[container].set_result(None)

    def _lose(self) -> None:
        """Fail everything that waits: the daemon has ended."""
        if self.lost.done():
            return
        self._loop.remove_reader(self._wire)
        self._wire.close()
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - _LOG_TAIL_BYTES))
        tail = self._log.read().decode("utf-8", "replace")
        self.lost.set_result(tail)
        error = RuntimeInterrupted(f"the process that keeps the sandboxes has ended\n{tail}")
        for waiting in (*self._up.values(), *self._runs.values()):
            if not waiting.done():
                waiting.set_exception(error)
        for gone in self._gone.values():
            if not gone.done():
                gone.set_result(None)


@asynccontextmanager
async def input_of(command: Command) -> AsyncIterator[int]:
    """Provide the descriptor of a command's input. Raises `OSError` if its file cannot be read."""
    if isinstance(command.stdin, bytes):
        reading = sealed(command.stdin)
        try:
            yield reading
        finally:
            os.close(reading)
        return
    source = os.open(command.stdin, os.O_RDONLY | os.O_CLOEXEC)
    reading, writing = os.pipe2(os.O_CLOEXEC)
    feeding = threading.Thread(target=_feed, args=(source, writing), name=f"feed {Path(command.stdin).name}")
    feeding.start()
    try:
        yield reading
    finally:
        os.close(reading)  # no process reads it any more, so the thread ends
        await asyncio.to_thread(feeding.join)


def sealed(content: bytes) -> int:
    """Return the descriptor of a file in memory that no process can write to."""
    descriptor = in_memory(content)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    return descriptor


def _feed(source: int, writing: int) -> None:
    # The reader may end before all is read.
    with (
        os.fdopen(source, "rb", buffering=0) as file,
        os.fdopen(writing, "wb", buffering=0) as pipe,
        suppress(BrokenPipeError),
    ):
        while piece := file.read(_INPUT_PIECE_BYTES):
            rest = memoryview(piece)
            while rest:
                rest = rest[pipe.write(rest) :]
