"""Backends whose sandboxes have records on this machine: each makes its own containers, and the rest is the same."""

import asyncio
import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from evolverpc_common.output_tail import OutputTail
from evolverpc_common.shielded import run_shielded
from sandbox_runtime.api.sandbox import (
    EgressNotEnforced,
    EnvironmentMissing,
    SandboxExit,
    SandboxGone,
    SandboxInfo,
    ServerEndpoint,
)
from sandbox_runtime.api.spec import (
    MEMORY_VARIABLE,
    MODELS_PORT,
    TUNNEL_PORT,
    Closed,
    Command,
    GatewaySession,
    PreparedEnvironment,
    ResourceLimits,
    SandboxSpec,
)
from sandbox_runtime.backends.records import SandboxRecord, SandboxRecords
from sandbox_runtime.runtime import Runtime, StartedSandbox, end_after_failure

BACKLOG = 1024
_PIECE_BYTES = 256 * 1024
_END_PAUSE_S = 0.01
_LAST_WORDS_S = 1.0
"""How long the end of output is waited for when what wrote it has ended: another process may hold its pipe."""


def check_environment(prepared: PreparedEnvironment) -> None:
    """Raise `EnvironmentMissing` if a part of the environment is gone."""
    for path in prepared.places:
        if not Path(path).exists():
            raise EnvironmentMissing(f"{path} is gone: prepare the environment again")


def check_egress(spec: SandboxSpec, backend: str) -> None:
    """Raise `EgressNotEnforced` if a sandbox without a network is to reach hosts and has no session to enforce it."""
    if not isinstance(spec.egress, Closed) and spec.gateway_session is None:
        raise EgressNotEnforced(
            f"a {backend} sandbox has no network: {type(spec.egress).__name__} needs a gateway session, which"
            " enforces it"
        )


async def gateway_variables(
    session: GatewaySession | None, listen: Callable[[int, int], Awaitable[Sequence[socket.socket]]]
) -> Mapping[str, str]:
    """Let a session answer in a container, see `Container.listen`; return the variables by which programs find it.

    Raises `SandboxError`, `OSError`.
    """
    if session is None:
        return {}
    ports = (MODELS_PORT, TUNNEL_PORT)
    sockets = await listen(*ports)
    own = [each.getsockname()[1] if each.family != socket.AF_UNIX else None for each in sockets]
    urls = [f"http://127.0.0.1:{port or wanted}" for port, wanted in zip(own, ports, strict=True)]
    await session.serve(*sockets)
    return session.env(*urls)


def server_socket(record: SandboxRecord) -> socket.socket:
    """Listen where the server is to be reached. Raises `OSError` if the path is too long for a socket.

    Close it when the server has it, so that no client waits in its backlog when the server has ended.
    """
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(record.server))
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def pids_with_words(*words: str) -> set[int]:
    """Return the processes of this machine whose command lines have these words one after the other."""
    wanted = f"\0{chr(0).join(words)}\0".encode()
    found = set()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError), open(f"{entry.path}/cmdline", "rb") as line:  # noqa: PTH123  of many
                if wanted in line.read():
                    found.add(int(entry.name))
    return found


def end_processes(find: Callable[[], set[int]], number: signal.Signals, within_s: float) -> None:
    """Send a signal to the processes that are found until there are none. Blocks. Raises `OSError` if some remain."""
    until = time.monotonic() + within_s
    while pids := find():
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        if time.monotonic() > until:
            raise OSError(f"processes {sorted(pids)} do not end")
        time.sleep(_END_PAUSE_S)


@contextlib.asynccontextmanager
async def captured(tail: OutputTail) -> AsyncIterator[int]:
    """Provide a descriptor to write to, which is read into `tail`, also for a moment after the block.

    It is read without a transport, because some event loops close its descriptor a second time. Raises `OSError`.
    """
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    os.set_blocking(writing, True)

    def read() -> None:
        with contextlib.suppress(BlockingIOError):
            if data := os.read(reading, _PIECE_BYTES):
                tail.add(data)
            else:
                loop.remove_reader(reading)
                ended.set()

    loop.add_reader(reading, read)
    try:
        yield writing
    finally:
        os.close(writing)
        try:
            await asyncio.wait_for(ended.wait(), _LAST_WORDS_S)
        except TimeoutError:
            pass  # see `_LAST_WORDS_S`
        finally:
            loop.remove_reader(reading)
            os.close(reading)


@contextlib.asynccontextmanager
async def input_of(command: Command) -> AsyncIterator[int]:
    """Provide the descriptor of a command's input. Raises `OSError` if its file cannot be read."""
    if isinstance(command.stdin, bytes):
        reading = sealed(command.stdin)
        try:
            yield reading
        finally:
            os.close(reading)
        return
    # By a pipe: with the descriptor of the file itself, the command could open the file to write to it.
    with command.open_input() as source:
        feeding = subprocess.Popen(("cat",), stdin=source, stdout=subprocess.PIPE)  # noqa: ASYNC220, S607  a millisecond
    assert feeding.stdout is not None  # noqa: S101  it is a pipe
    try:
        yield feeding.stdout.fileno()
    finally:
        feeding.stdout.close()  # no process reads it any more, so `cat` ends
        await asyncio.to_thread(feeding.wait)


def sealed(content: bytes) -> int:
    """Return the descriptor of a file in memory with this content, at its beginning; no process can write to it."""
    descriptor = os.memfd_create("content", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with os.fdopen(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


class LocalContainer(StartedSandbox, ABC):
    """See `StartedSandbox`. Call `start`, and `close` in any case. `variables`: of all its commands."""

    def __init__(
        self, records: SandboxRecords, labels: Mapping[str, str], limits: ResourceLimits, log: OutputTail
    ) -> None:
        self.records = records
        self.record = records.add(labels)
        self.limits = limits
        self.log = log
        self.variables: Mapping[str, str] = {}

    @property
    def id(self) -> str:
        return self.record.id

    @abstractmethod
    async def start(self) -> None:
        """Start it, without a command. Raises `SandboxError`, `OSError`."""

    @abstractmethod
    async def listen(self, *ports: int) -> Sequence[socket.socket]:
        """Return sockets for connections to these ports of the loopback that its commands see.

        If that is this machine's own, they are TCP sockets at any ports. Raises `SandboxError`, `OSError`.
        """

    @abstractmethod
    async def run_server(self, command: Command) -> SandboxExit:
        """Run the server, at the socket of the record, until it ends. Raises `SandboxGone`; or as `serve`."""

    @abstractmethod
    async def close(self) -> None:
        """End it and free everything of it, also its record. Raises `SandboxError`, `OSError` if something is left."""

    async def serve(self, main: Command, endpoint: ServerEndpoint) -> SandboxExit:
        own = {"GEPA_TOKEN": endpoint.token, MEMORY_VARIABLE: str(self.limits.memory_mb)}
        try:
            ended = await self.run_server(replace(main, env={**main.env, **own}, stdin=b""))
        except SandboxGone:
            ended = SandboxExit("terminated")
        return SandboxExit("terminated", detail="swept") if self.records.is_swept(self.record) else ended

    async def endpoint(self, token: str) -> ServerEndpoint:
        """Return the address of its server: a unix socket. Raises `OSError` if its path is too long."""
        return ServerEndpoint(f"http+unix://{quote(str(self.record.server), safe='')}", token)


class LocalBackend(Runtime):
    """See `Runtime`. `found` and `stop` need not be opened before."""

    def __init__(self) -> None:
        super().__init__()
        self._records = SandboxRecords(self.name)
        self._containers: dict[str, LocalContainer] = {}

    @abstractmethod
    async def make(self, spec: SandboxSpec, log: OutputTail) -> LocalContainer:
        """Return a container that is not started, with the variables that name its folders and its user.

        Raises as `Runtime.begin`.
        """

    @staticmethod
    @abstractmethod
    def free(record: SandboxRecord) -> None:
        """End everything of a sandbox of any process. Blocks. Raises `SandboxError`, `OSError` if something is left."""

    async def begin(self, spec: SandboxSpec, log: OutputTail) -> LocalContainer:
        container = await self.make(spec, log)
        self._containers[container.id] = container
        try:
            await container.start()
            gateway = await gateway_variables(spec.gateway_session, container.listen)
        except BaseException:
            await end_after_failure(self.stop(container.id))
            raise
        container.variables = {**container.variables, **gateway, **spec.env, **spec.secrets}
        return container

    async def stop(self, id_: str) -> None:
        container = self._containers.get(id_)
        if container is None:
            await run_shielded(self._records.free, id_, self.free)
        else:
            await container.close()
            self._containers.pop(id_, None)

    async def found(self, labels: Mapping[str, str] | None = None) -> Sequence[SandboxInfo]:
        """See `Runtime.found`; those that this machine started."""
        return [record.found() for record in await asyncio.to_thread(self._records.all, labels)]
