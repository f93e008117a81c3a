"""One container made by bubblewrap: start it, run commands in it, and remove it, also after its owner has ended."""

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from evolverpc_common.output_tail import OutputTail
from evolverpc_common.process_identity import started_at
from evolverpc_common.shielded import await_shielded, run_shielded
from sandbox_runtime.api.sandbox import LOG_BYTES, SandboxError
from sandbox_runtime.api.spec import ResourceLimits
from sandbox_runtime.backends.bubblewrap.cgroups import ControlGroup, ControlGroups, process_limits, server_variables
from sandbox_runtime.backends.bubblewrap.container_layout import VisiblePaths, mounts_order, start_order
from sandbox_runtime.backends.bubblewrap.supervisor_client import (
    CommandOrder,
    ContainerEntry,
    SupervisorClient,
    written,
)
from sandbox_runtime.backends.lifecycle import OutputCapture, capture_pipe
from sandbox_runtime.backends.records import SandboxRecord, SandboxRecords

BUILDER = 0x7000_0000
"""The user that builds environments, if sandboxes have users of their own."""

_USERS = range(BUILDER + 1, 0x7FFF_FFFF)


@dataclass(frozen=True)
class BackendContext:
    """What all containers of a runtime share.

    `bubblewrap`: its path. `rooted`: this process is root, so each container gets a user of its own. `warm`: servers
    are forked.
    """

    bubblewrap: str
    supervisor: SupervisorClient
    records: SandboxRecords
    groups: ControlGroups
    rooted: bool
    warm: bool

    def new_user(self) -> int | None:
        """Return a user that no other process has; None if containers run as this process's user."""
        return secrets.choice(_USERS) if self.rooted else None

    @property
    def builder(self) -> int | None:
        """The user of builds, always the same because one build continues another; None as in `new_user`."""
        return BUILDER if self.rooted else None


_LAST_WORDS_S = 1.0


class Container:
    """A container of bubblewrap. Call `start`, and `close` in any case."""

    def __init__(
        self,
        context: BackendContext,
        labels: Mapping[str, str],
        visible: VisiblePaths,
        limits: ResourceLimits,
        user: int | None,
    ) -> None:
        self._context = context
        self._visible = visible
        self._limits = limits
        self._number = context.supervisor.number()
        self.record = context.records.add(labels)
        self._group: ControlGroup = context.groups.group(host_name(self.record.id))
        self._entry = ContainerEntry(user, self._group.entries)
        self.log = OutputTail(LOG_BYTES)
        self._log_end: int | None = None
        self._log_capture: OutputCapture | None = None

    @property
    def user(self) -> int | None:
        """The user that its commands run as, outside; None if that is this process's."""
        return self._entry.user

    async def start(self) -> None:
        """Start it, without a command. Raises `SandboxError`, `OSError`: see `log`; it must still be closed."""
        resources = RecordedResources(groups=[str(folder) for folder in self._group.folders])
        self.record = self._context.records.update(self.record, resources.model_dump())
        self._log_capture, self._log_end = capture_pipe(self.log)
        self._context.groups.make(host_name(self.record.id), self._limits)
        with ExitStack() as opened:
            orders = (
                start_order(
                    self._visible,
                    self._entry,
                    bubblewrap=self._context.bubblewrap,
                    name=host_name(self.record.id),
                    workspace_mb=self._limits.workspace_mb,
                ),
                mounts_order(self._visible, self._entry),
            )
            descriptors = [_closed_by(opened, written(order)) for order in orders]
            try:
                pid = await self._context.supervisor.start(self._number, [*descriptors, self._log_end])
            except SandboxError:
                await self.gone()
                await asyncio.sleep(0)  # its last output may not be read yet
                raise
        resources = RecordedResources(groups=resources.groups, monitor=pid, started=started_at(pid))
        self.record = self._context.records.update(self.record, resources.model_dump())

    async def run(self, order: CommandOrder, descriptors: Sequence[int], timeout_s: float) -> int | None:
        """Run a command with these descriptors as its 0, 1, 2 and further ones.

        Return its status, None if it timed out. When this returns, raises or is cancelled, the command has ended, and
        if it was alone, everything that it started.

        Raises:
            SandboxGone: the container has ended.
        """
        run = self._context.supervisor.number()
        status = await self.begin(order, descriptors, run)
        try:
            done, _ = await asyncio.wait({status}, timeout=timeout_s)
            return status.result() if done else None
        finally:
            if not status.done():
                await await_shielded(self._stop(run, status))

    async def begin(
        self, order: CommandOrder, descriptors: Sequence[int], run: int | None = None
    ) -> "asyncio.Future[int]":
        """Start a command; its status, or `SandboxGone`, comes later. The descriptors may be closed afterwards."""
        supervisor = self._context.supervisor
        with ExitStack() as opened:
            first = _closed_by(opened, order.written(self._entry))
            return await supervisor.run(
                self._number, supervisor.number() if run is None else run, [first, *descriptors]
            )

    async def _stop(self, run: int, status: "asyncio.Future[int]") -> None:
        await self._context.supervisor.stop(run)
        await asyncio.wait({status})
        status.exception()  # looked at: that the sandbox has ended is as good

    def logged(self, stdin: int, *more: int) -> list[int]:
        """Return the descriptors of a command whose output goes to the log."""
        assert self._log_end is not None, "it is started"  # noqa: S101
        return [stdin, self._log_end, self._log_end, *more]

    async def run_captured(
        self, order: CommandOrder, stdin: int, kept: int, timeout_s: float, *, together: bool = False
    ) -> tuple[int | None, bytes, bytes]:
        """Run a command, and also return the ends of its stdout and stderr, both in the first if `together`."""
        tails = [OutputTail(kept)] if together else [OutputTail(kept), OutputTail(kept)]
        pipes: list[tuple[OutputCapture, int]] = []
        try:
            for tail in tails:
                pipes.append(capture_pipe(tail))  # noqa: PERF401  what was opened must be known at a failure
            status = await self.run(order, [stdin, pipes[0][1], pipes[-1][1]], timeout_s)
        finally:
            for _, end in pipes:
                os.close(end)
            for capture, _ in pipes:
                await capture.close(_LAST_WORDS_S)
        return status, tails[0].bytes(), b"" if together else tails[1].bytes()

    async def listen(self, *ports: int) -> list[socket.socket]:
        """Return sockets that listen on the container's own 127.0.0.1."""
        with ExitStack() as opened:
            order = _closed_by(opened, written({"user": self._entry.user, "listen": list(ports)}))
            return await self._context.supervisor.listen(self._number, order, len(ports))

    async def gone(self) -> None:
        """Wait until it has ended."""
        await self._context.supervisor.gone(self._number)

    @property
    def is_condemned(self) -> bool:
        """Whether it was swept."""
        return self._context.records.is_condemned(self.record)

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
        await self._context.supervisor.close(self._number)
        if self._log_end is not None and self._log_capture is not None:
            os.close(self._log_end)
            self._log_end = None
            await self._log_capture.close(_LAST_WORDS_S)
        await run_shielded(self._group.remove)
        await run_shielded(self._context.records.remove, self.record)


def _closed_by(stack: ExitStack, descriptor: int) -> int:
    stack.callback(os.close, descriptor)
    return descriptor


_END_S = 10.0
_PAUSE_S = 0.01


def host_name(id_: str) -> str:
    """Return a sandbox's host name, which is in the command line of its bubblewrap and names its control groups."""
    return f"gepa-{id_}"


class RecordedResources(BaseModel):
    """`groups`: folders of its control group. `monitor`, `started`: bubblewrap's process, once it runs."""

    model_config = ConfigDict(frozen=True)

    groups: list[str] = []
    monitor: int | None = None
    started: int | None = None

    @classmethod
    def of(cls, record: SandboxRecord) -> "RecordedResources":
        """Return those of a record; none if the record has another form."""
        try:
            return cls.model_validate(record.resources)
        except ValidationError:
            return cls()


def free(record: SandboxRecord) -> None:
    """End everything of a sandbox, and remove its control group. Blocks. Raises `OSError` if something is left."""
    resources = RecordedResources.of(record)
    name = host_name(record.id)
    group = ControlGroup(tuple(Path(folder) for folder in resources.groups if Path(folder).name == name))
    until = time.monotonic() + _END_S
    while pids := {*_named(name), *group.pids(), *_monitor(resources)}:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > until:
            raise OSError(f"processes {sorted(pids)} of sandbox {record.id} do not end")
        time.sleep(_PAUSE_S)
    group.remove()


def _monitor(resources: RecordedResources) -> Iterator[int]:
    if resources.monitor is not None and started_at(resources.monitor) == resources.started:
        yield resources.monitor


def _named(name: str) -> Iterator[int]:
    """Yield the bubblewrap processes of a sandbox, also one whose parent was killed before it could notice."""
    wanted = b"\0--hostname\0" + name.encode() + b"\0"
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in (entry / "cmdline").read_bytes():
                    yield int(entry.name)
