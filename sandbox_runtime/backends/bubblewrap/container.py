"""One container made by bubblewrap: start it, run commands in it, and remove it, also after its owner has ended."""

import asyncio
import contextlib
import itertools
import json
import os
import secrets
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from evolverpc_common.output_tail import OutputTail
from evolverpc_common.shielded import await_shielded, run_shielded
from sandbox_runtime.api.sandbox import LOG_BYTES, SandboxError, SandboxGone
from sandbox_runtime.api.spec import ResourceLimits
from sandbox_runtime.backends.bubblewrap.cgroups import ControlGroup, ControlGroups, process_limits, server_variables
from sandbox_runtime.backends.bubblewrap.container_command import argv_alone, container_argv
from sandbox_runtime.backends.bubblewrap.container_layout import VisiblePaths
from sandbox_runtime.backends.bubblewrap.first_process import DESCRIPTORS, MESSAGE_BYTES
from sandbox_runtime.backends.bubblewrap.inputs import in_memory
from sandbox_runtime.backends.local_steps import OutputCapture, capture_pipe, end_processes, pids_with_words
from sandbox_runtime.backends.records import SandboxRecord, SandboxRecords

BUILDER = 0x7000_0000
"""The user that builds environments, if sandboxes have users of their own."""

_USERS = range(BUILDER + 1, 0x7FFF_FFFF)


@dataclass(frozen=True)
class BackendContext:
    """What all containers of a runtime share.

    `bubblewrap`: its path. `rooted`: this process is root, so each container gets a user of its own.
    """

    bubblewrap: str
    records: SandboxRecords
    groups: ControlGroups
    rooted: bool

    def new_user(self) -> int | None:
        """Return a user that no other process has; None if containers run as this process's user."""
        return secrets.choice(_USERS) if self.rooted else None

    @property
    def builder(self) -> int | None:
        """The user of builds, always the same because one build continues another; None as in `new_user`."""
        return BUILDER if self.rooted else None


@dataclass(frozen=True)
class CommandOrder:
    """An order to run a command. `limits`: by the names of `resource`.

    `alone`: in a pid namespace of its own, so that nothing of it is left.
    """

    argv: Sequence[str]
    cwd: str
    env: Mapping[str, str] = field(repr=False)
    limits: Mapping[str, int]
    alone: bool


_LAST_WORDS_S = 1.0
_EXIT_S = 5.0
_SEND_PAUSE_S = 0.01


class Container:
    """A container of bubblewrap, used in one event loop. Call `start`, and `close` in any case.

    It is one child process of this one, and ends with it and with the thread that started it.
    """

    def __init__(
        self,
        context: BackendContext,
        labels: Mapping[str, str],
        visible: VisiblePaths,
        limits: ResourceLimits,
        user: int | None,
        log: OutputTail | None = None,
    ) -> None:
        self._context = context
        self._visible = visible
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self.user = user
        self.record = context.records.add(labels, self._recorded)
        self._name = host_name(self.record.id)
        self._group: ControlGroup = context.groups.group(self._name)
        self._wire: socket.socket | None = None
        self._up: asyncio.Future[None] = self._loop.create_future()
        self._gone: asyncio.Future[None] | None = None
        self._runs: dict[int, asyncio.Future[int]] = {}
        self._listens: dict[int, asyncio.Future[list[socket.socket]]] = {}
        self._count = itertools.count()
        self.log = log or OutputTail(LOG_BYTES)
        self._log_end: int | None = None
        self._log_capture: OutputCapture | None = None

    def _recorded(self, id_: str) -> dict[str, Any]:
        folders = self._context.groups.group(host_name(id_)).folders
        return {"groups": [str(folder) for folder in folders]}

    async def start(self) -> None:
        """Start it, without a command. Raises `SandboxError`, `OSError`: see `log`; it must still be closed."""
        self._log_capture, self._log_end = capture_pipe(self.log)
        self._context.groups.make(self._name, self._limits)
        self._gone = self._execute(self._log_end)
        await asyncio.wait({self._up, self._gone}, return_when=asyncio.FIRST_COMPLETED)
        if not self._up.done():
            await asyncio.sleep(0)  # its last output may not be read yet
            raise SandboxError("bubblewrap could not make the sandbox")

    def _execute(self, log: int) -> "asyncio.Future[None]":
        """Start the process of the container; return what is done when it has ended. Raises `OSError`."""
        with ExitStack() as opened:
            self._wire, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            opened.enter_context(theirs)
            given = [theirs.fileno()]

            def file(content: bytes) -> int:
                given.append(_closed_by(opened, in_memory(content)))
                return given[-1]

            argv = container_argv(
                self._visible,
                bubblewrap=self._context.bubblewrap,
                name=self._name,
                workspace_mb=self._limits.workspace_mb,
                user=self.user,
                groups=self._group.entries,
                file=file,
                wire=theirs.fileno(),
            )
            process = subprocess.Popen(  # noqa: S603  no shell
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env={"PATH": os.defpath},
                pass_fds=given,
                start_new_session=True,
            )
        try:
            ended = os.pidfd_open(process.pid)
        except OSError:
            process.kill()
            process.wait()
            raise
        self._wire.setblocking(False)
        self._loop.add_reader(self._wire, self._read)
        gone: asyncio.Future[None] = self._loop.create_future()

        def reap() -> None:
            self._loop.remove_reader(ended)
            os.close(ended)
            process.wait()
            self._read()
            self._hang_up()
            gone.set_result(None)

        self._loop.add_reader(ended, reap)
        return gone

    def _read(self) -> None:
        """Take what the first process has sent."""
        while self._wire is not None:
            try:
                text, descriptors, _, _ = socket.recv_fds(
                    self._wire, MESSAGE_BYTES, DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                return
            except OSError:
                text, descriptors = b"", []
            if not text:
                self._hang_up()
                return
            self._receive(json.loads(text), [socket.socket(fileno=each) for each in descriptors])

    def _receive(self, message: dict[str, Any], sockets: list[socket.socket]) -> None:
        if "run" in message:
            ended = self._runs.pop(message["run"])
            if not ended.done():  # else the caller was cancelled
                ended.set_result(message["status"])
        elif "listen" in message:
            listening = self._listens.pop(message["listen"])
            if listening.done():
                for each in sockets:
                    each.close()
            elif sockets:
                listening.set_result(sockets)
            else:
                listening.set_exception(SandboxError(f"cannot listen in the sandbox: {message['fault']}"))
        else:
            self._up.set_result(None)

    def _hang_up(self) -> None:
        """Close the socket of the first process, at which that ends, and fail what waits."""
        if self._wire is not None:
            self._loop.remove_reader(self._wire)
            self._wire.close()
            self._wire = None
        waits: list[asyncio.Future[Any]] = [*self._runs.values(), *self._listens.values()]
        for waiting in waits:
            if not waiting.done():
                waiting.set_exception(SandboxGone("the sandbox has ended"))

    async def _send(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Send an order to the first process. Raises `SandboxGone`."""
        while self._wire is not None:
            try:
                socket.send_fds(self._wire, [json.dumps(message).encode()], list(descriptors))
                return
            except BlockingIOError:
                await asyncio.sleep(_SEND_PAUSE_S)
            except OSError:
                break
        raise SandboxGone("the sandbox has ended")

    async def begin(self, order: CommandOrder, descriptors: Sequence[int]) -> "asyncio.Future[int]":
        """Start a command; its status, or `SandboxGone`, comes later. The descriptors may be closed afterwards.

        Raises:
            SandboxGone: the container has ended.
        """
        _, status = await self._order(order, descriptors)
        status.add_done_callback(lambda done: done.cancelled() or done.exception())  # retrieved in any case
        return status

    async def _order(self, order: CommandOrder, descriptors: Sequence[int]) -> "tuple[int, asyncio.Future[int]]":
        run, status = next(self._count), self._loop.create_future()
        alone = argv_alone(self._context.bubblewrap) if order.alone else ()
        with ExitStack() as opened:
            text = json.dumps({**asdict(order), "alone": alone}).encode()
            await self._send({"run": run}, [_closed_by(opened, in_memory(text)), *descriptors])
        self._runs[run] = status
        return run, status

    async def _stop(self, run: int, status: "asyncio.Future[int]") -> None:
        with contextlib.suppress(SandboxGone):
            await self._send({"stop": True, "run": run})
        await asyncio.wait({status})
        status.exception()  # looked at: that the sandbox has ended is as good

    def logged(self, stdin: int, *more: int) -> list[int]:
        """Return the descriptors of a command whose output goes to the log."""
        assert self._log_end is not None, "it is started"  # noqa: S101
        return [stdin, self._log_end, self._log_end, *more]

    async def run(
        self, order: CommandOrder, stdin: int, timeout_s: float, stdout: OutputTail, stderr: OutputTail | None = None
    ) -> int | None:
        """Run a command that is alone, and keep its output; that of stderr in `stdout` if that is None.

        Return its status, None if it timed out. When this returns, raises or is cancelled, the command has ended, and
        everything that it started.

        Raises:
            SandboxGone: the container has ended.
        """
        pipes: list[tuple[OutputCapture, int]] = []
        try:
            for tail in [stdout] if stderr is None else [stdout, stderr]:
                pipes.append(capture_pipe(tail))  # noqa: PERF401  what was opened must be known at a failure
            run, status = await self._order(order, [stdin, pipes[0][1], pipes[-1][1]])
            try:
                done, _ = await asyncio.wait({status}, timeout=timeout_s)
                return status.result() if done else None
            finally:
                if not status.done():
                    await await_shielded(self._stop(run, status))
        finally:
            for _, end in pipes:
                os.close(end)
            for capture, _ in pipes:
                await capture.close(_LAST_WORDS_S)

    async def listen(self, *ports: int) -> list[socket.socket]:
        """Return sockets that listen on the container's own 127.0.0.1. Raises `SandboxGone`, `SandboxError`."""
        run = next(self._count)
        listening: asyncio.Future[list[socket.socket]] = self._loop.create_future()
        await self._send({"listen": ports, "run": run})
        self._listens[run] = listening
        return await listening

    async def is_gone(self, within_s: float) -> bool:
        """Return whether it has ended within so many seconds."""
        assert self._gone is not None, "it is started"  # noqa: S101
        return bool((await asyncio.wait({self._gone}, timeout=within_s))[0])

    def has_lacked_memory(self) -> bool:
        """Return whether a process in it was killed because the memory was exhausted."""
        return self._group.killed() > 0

    def limits(self, *, server: bool = False) -> dict[str, int]:
        """Return the limits of each process in it: of the server, or of others."""
        return process_limits(self._limits, self._context.groups.missing_controllers, server=server)

    def server_variables(self) -> dict[str, str]:
        """Return the variables that describe its limits to its server."""
        return server_variables(self._limits, self._context.groups.missing_controllers)

    async def close(self) -> None:
        """End it and remove everything of it."""
        await await_shielded(self._close())

    async def _close(self) -> None:
        self._hang_up()
        if self._gone is not None:
            await asyncio.wait({self._gone}, timeout=_EXIT_S)
        await run_shielded(free, self.record)
        if self._gone is not None:
            await asyncio.wait({self._gone})
        if self._log_end is not None and self._log_capture is not None:
            os.close(self._log_end)
            self._log_end = None
            await self._log_capture.close(_LAST_WORDS_S)
        await run_shielded(self._context.records.remove, self.record)


def _closed_by(stack: ExitStack, descriptor: int) -> int:
    stack.callback(os.close, descriptor)
    return descriptor


_END_S = 10.0


def host_name(id_: str) -> str:
    """Return a sandbox's host name, which is in the command lines that make it, and names its control groups."""
    return f"gepa-{id_}"


def free(record: SandboxRecord) -> None:
    """End everything of a sandbox, and remove its control group. Blocks. Raises `OSError` if something is left."""
    name = host_name(record.id)
    group = ControlGroup(
        tuple(folder for folder in map(Path, record.resources.get("groups", ())) if folder.name == name)
    )
    end_processes(lambda: processes_named(name) | group.pids(), signal.SIGKILL, _END_S)
    group.remove()


def processes_named(name: str) -> set[int]:
    """Return the processes that make the container of this host name, also one whose parent was killed."""
    return pids_with_words("--hostname", name)
