"""One container made by bubblewrap: start it, run commands in it, and remove it, also after its owner has ended."""

import asyncio
import contextlib
import json
import os
import posixpath
import secrets
import signal
import socket
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evolverpc_common.output_tail import OutputTail
from evolverpc_common.shielded import await_shielded, run_shielded
from sandbox_runtime.api.sandbox import LOG_BYTES, SandboxError, SandboxExit, SandboxGone
from sandbox_runtime.api.spec import Command, ResourceLimits
from sandbox_runtime.backends.bubblewrap.cgroups import ControlGroup, ControlGroups, process_limits, server_variables
from sandbox_runtime.backends.bubblewrap.container_command import VisiblePaths, argv_alone, container_argv
from sandbox_runtime.backends.bubblewrap.first_process import DESCRIPTORS
from sandbox_runtime.backends.image_setup import WORKSPACE
from sandbox_runtime.backends.local_backend import (
    LocalContainer,
    captured,
    end_processes,
    input_of,
    pids_with_words,
    sealed,
    server_socket,
)
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

    def user(self, *, builds: bool) -> int | None:
        """Return a user that no other process has, but the same for all builds, because one continues another.

        None if containers run as this process's user.
        """
        return (BUILDER if builds else secrets.choice(_USERS)) if self.rooted else None


_KILLED = 137
_ALL_KILLED_S = 0.3
"""Seconds after which a container one of whose commands was killed has ended too, if all of it was killed."""

_ANSWER_BYTES = 65536
_GROUPS = "groups"
"""The file of a record with the folders of the control group."""

_EXIT_S = 5.0


class Container(LocalContainer):
    """See `LocalContainer`; used in one event loop.

    It is one child process of this one, and ends with it and with the thread that started it. Its commands start in the
    workspace, or in the folder that it may write to.
    """

    def __init__(
        self,
        context: BackendContext,
        labels: Mapping[str, str],
        visible: VisiblePaths,
        limits: ResourceLimits,
        log: OutputTail | None = None,
    ) -> None:
        super().__init__(context.records, labels, limits, OutputTail(LOG_BYTES) if log is None else log)
        self._context = context
        self._visible = visible
        self._name = host_name(self.id)
        self._group: ControlGroup = context.groups.group(self._name)
        self._open = AsyncExitStack()
        self._log_end = -1
        self._wire: socket.socket | None = None
        self._gone: asyncio.Task[int] | None = None

    async def start(self) -> None:
        """Start it, without a command. Raises `SandboxError`, `OSError`: see `log`; it must still be closed."""
        self._wire, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._wire.setblocking(False)
        with theirs:
            self._log_end = await self._open.enter_async_context(captured(self.log))
            (self.record.folder / _GROUPS).write_text("\n".join(map(str, self._group.folders)))
            self._context.groups.make(self._name, self.limits)
            with ExitStack() as opened:
                given = [theirs.fileno()]

                def file(content: bytes) -> int:
                    given.append(sealed(content))
                    opened.callback(os.close, given[-1])
                    return given[-1]

                argv = container_argv(
                    self._visible,
                    bubblewrap=self._context.bubblewrap,
                    name=self._name,
                    workspace_mb=self.limits.workspace_mb,
                    user=self._context.user(builds=self._visible.writable is not None),
                    groups=self._group.entries,
                    file=file,
                    wire=theirs.fileno(),
                )
                process = await asyncio.create_subprocess_exec(
                    *argv,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=self._log_end,
                    stderr=self._log_end,
                    cwd="/",
                    env={"PATH": os.defpath},
                    pass_fds=given,
                    start_new_session=True,
                )
        self._gone = asyncio.create_task(process.wait())
        self._gone.add_done_callback(lambda _: self._hang_up())  # ends what is left, if the outermost was killed
        try:
            await self.listen()
        except SandboxGone:
            raise SandboxError("bubblewrap could not make the sandbox") from None

    def _hang_up(self) -> None:
        if self._wire is not None:
            self._wire.close()

    async def _order(self, order: Mapping[str, Any], descriptors: Sequence[int] = ()) -> socket.socket:
        """Give an order to the first process; return the connection to what carries it out. Raises `SandboxGone`."""
        assert self._wire is not None, "it was started"  # noqa: S101
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            try:
                socket.send_fds(self._wire, [b"."], [theirs.fileno(), *descriptors])
            except OSError:
                ours.close()
                raise SandboxGone("the sandbox has ended") from None
        with contextlib.suppress(OSError):  # then its answer has the reason
            await asyncio.get_running_loop().sock_sendall(ours, json.dumps(order).encode() + b"\n")
        return ours

    async def _answer(self, connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
        """Return the answer to an order, with descriptors. Raises `SandboxGone`, `SandboxError`."""
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(connection, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(connection)
        try:
            text, descriptors, _, _ = socket.recv_fds(connection, _ANSWER_BYTES, DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        except OSError:
            text, descriptors = b"", []
        answer = json.loads(text) if text else {"status": _KILLED}
        # A process that kills the whole container kills its server first.
        if answer.get("status") == _KILLED:
            assert self._gone is not None, "it is started"  # noqa: S101
            if (await asyncio.wait({self._gone}, timeout=_ALL_KILLED_S))[0]:
                raise SandboxGone("the sandbox has ended")
        if "fault" in answer:
            raise SandboxError(f"the sandbox cannot carry out an order: {answer['fault']}")
        return answer, descriptors

    async def _status(self, connection: socket.socket) -> int:
        with connection:
            return int((await self._answer(connection))[0]["status"])

    async def _stop(self, connection: socket.socket, status: "asyncio.Task[int]") -> None:
        connection.shutdown(socket.SHUT_WR)
        await asyncio.wait({status})
        status.exception()  # looked at: that the sandbox has ended is as good

    def _command(self, command: Command, *, server: bool = False) -> dict[str, Any]:
        """Return the order to run a server, or a command in a pid namespace of its own, all of which ends with it."""
        folder = WORKSPACE if self._visible.writable is None else str(self._visible.writable)
        return {
            "argv": command.argv,
            "cwd": posixpath.normpath(posixpath.join(folder, command.cwd)),
            "env": {**self.variables, **command.env},
            "limits": process_limits(self.limits, self._context.groups.missing_controllers, server=server),
            "alone": () if server else argv_alone(self._context.bubblewrap),
        }

    async def begin(self, command: Command, streams: Sequence[int]) -> "asyncio.Task[int]":
        """Start a command with these descriptors, which may be closed afterwards; return the task of its status.

        Raises:
            SandboxGone: the container has ended; the task too.
        """
        return asyncio.create_task(self._status(await self._order(self._command(command), streams)))

    async def run(self, command: Command, stdout: OutputTail, stderr: OutputTail | None = None) -> int | None:
        async with AsyncExitStack() as stack:
            out = await stack.enter_async_context(captured(stdout))
            err = out if stderr is None else await stack.enter_async_context(captured(stderr))
            stdin = await stack.enter_async_context(input_of(command))
            connection = await self._order(self._command(command), [stdin, out, err])
            status = asyncio.create_task(self._status(connection))
            try:
                done, _ = await asyncio.wait({status}, timeout=command.timeout_s)
                return status.result() if done else None
            finally:
                if not status.done():
                    await await_shielded(self._stop(connection, status))

    async def run_server(self, command: Command) -> SandboxExit:
        own = {"GEPA_LISTEN": "fd:3", **server_variables(self.limits, self._context.groups.missing_controllers)}
        order = self._command(replace(command, env={**command.env, **own}), server=True)
        with server_socket(self.record) as listening:
            async with input_of(command) as stdin:
                connection = await self._order(order, [stdin, self._log_end, self._log_end, listening.fileno()])
        status = await self._status(connection)
        lacked = status == _KILLED and self.has_lacked_memory()
        detail = f"it was killed: the sandbox has {self.limits.memory_mb} MB of memory" if lacked else ""
        return SandboxExit("exited", status, detail)

    async def listen(self, *ports: int) -> list[socket.socket]:
        """Return sockets that listen on the container's own 127.0.0.1. Raises `SandboxGone`, `SandboxError`."""
        with await self._order({"listen": ports}) as connection:
            return [socket.socket(fileno=each) for each in (await self._answer(connection))[1]]

    def has_lacked_memory(self) -> bool:
        """Return whether a process in it was killed because the memory was exhausted."""
        return self._group.killed() > 0

    async def close(self) -> None:
        """End it and remove everything of it."""
        await await_shielded(self._close())

    async def _close(self) -> None:
        self._hang_up()
        gone = set() if self._gone is None else {self._gone}
        if gone:
            await asyncio.wait(gone, timeout=_EXIT_S)
        await run_shielded(free, self.record)
        if gone:
            await asyncio.wait(gone)
        await self._open.aclose()
        await run_shielded(self._context.records.remove, self.record)


_END_S = 10.0


def host_name(id_: str) -> str:
    """Return a sandbox's host name, which is in the command lines that make it, and names its control groups."""
    return f"gepa-{id_}"


def free(record: SandboxRecord) -> None:
    """End everything of a sandbox, and remove its control group. Blocks. Raises `OSError` if something is left."""
    name, groups = host_name(record.id), record.folder / _GROUPS
    # With its first process, the kernel ends all others of the container.
    end_processes(lambda: processes_named(name), signal.SIGKILL, _END_S)
    if groups.exists():
        folders = map(Path, groups.read_text().splitlines())
        ControlGroup(tuple(folder for folder in folders if folder.name == name)).remove()


def processes_named(name: str) -> set[int]:
    """Return the processes that make the container of this host name, also one whose parent was killed."""
    return pids_with_words("--hostname", name)
