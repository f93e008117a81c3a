"""One container: start it, run commands and carry connections in it by its first process, and remove it."""

import asyncio
import contextlib
import secrets
import socket
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from evolverpc_common import process_reaper
from evolverpc_common.output_tail import OutputTail
from evolverpc_common.shielded import await_shielded
from sandbox_runtime.api.sandbox import SandboxError, SandboxExit, SandboxGone
from sandbox_runtime.api.spec import MODELS_PORT, TUNNEL_PORT, Command, ResourceLimits
from sandbox_runtime.backends.docker import channels as protocol
from sandbox_runtime.backends.docker.channels import BrokenChannels, Channel, Channels
from sandbox_runtime.backends.docker.docker_command import failure, remove_containers
from sandbox_runtime.backends.image_setup import PORT, SERVER_PYTHON, WORKSPACE
from sandbox_runtime.backends.local_backend import BACKLOG, LocalContainer
from sandbox_runtime.backends.records import SandboxRecords

LABEL = "evolverpc"
"""The label of every container of this backend; its value is the sandbox's id."""

END_S = 30.0
"""Seconds within which a command that is to end, or a container that is to go, must have ended."""

_FIRST_PROCESS = Path(protocol.__file__).read_text(encoding="utf-8")
_REAPER = Path(process_reaper.__file__).read_text(encoding="utf-8")
_USERS = range(20_000, 60_000)
_PAUSE_S = 0.05
_STDERR_BYTES = 16 * 1024


def container_name(id_: str) -> str:
    """Return the name of a sandbox's container."""
    return f"evolverpc-{id_}"


@dataclass(frozen=True)
class ContainerPlan:
    """What a container is made from.

    `writable`: its own file system can be written, as a build needs; `user`: who runs in it, by default one of its own.
    """

    image: str
    limits: ResourceLimits
    writable: bool = False
    user: int | None = None

    def argv(self, id_: str) -> tuple[str, ...]:
        """Return the docker command that runs it, with its first process on stdin and stdout."""
        limits, user = self.limits, secrets.choice(_USERS) if self.user is None else self.user
        files = f"rw,exec,nosuid,nodev,mode=1777,size={limits.workspace_mb}m"
        return (
            *("docker", "run", "--rm", "--interactive", "--pull", "never", "--log-driver", "none"),
            *("--name", container_name(id_), "--label", f"{LABEL}={id_}", "--hostname", "sandbox"),
            *("--network", "none", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
            *(() if self.writable else ("--read-only",)),
            *("--user", f"{user}:{user}", "--workdir", WORKSPACE),
            *("--memory", f"{limits.memory_mb}m", "--memory-swap", f"{limits.memory_mb}m"),
            *("--pids-limit", str(limits.processes), "--cpus", f"{limits.cpu:g}"),
            *("--tmpfs", f"{WORKSPACE}:{files}", "--tmpfs", f"/tmp:{files}"),  # noqa: S108  of the container
            *("--entrypoint", SERVER_PYTHON, self.image),
            *("-I", "-S", "-c", _FIRST_PROCESS, _REAPER, str(MODELS_PORT), str(TUNNEL_PORT)),
        )


class Container(LocalContainer):
    """See `LocalContainer`; used in one event loop. It ends with this process."""

    def __init__(
        self, records: SandboxRecords, labels: Mapping[str, str], plan: ContainerPlan, log: OutputTail
    ) -> None:
        super().__init__(records, labels, plan.limits, log)
        self._plan = plan
        self._process: Process | None = None
        self._channels: Channels | None = None
        self._serving: asyncio.Task[None] | None = None
        self._stderr = OutputTail(_STDERR_BYTES)
        self._options = [f"--file-size={plan.limits.workspace_mb << 20}"]

    async def start(self) -> None:
        """Start it and wait until its first process is up, for any time. Raises `SandboxError`, `OSError`."""
        self._process = process = await asyncio.create_subprocess_exec(
            *self._plan.argv(self.id), stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
        )
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None  # noqa: S101
        complaining = asyncio.create_task(_read(process.stderr, self._stderr))
        self._channels = Channels(process.stdout, process.stdin, 2, self._accepted)
        try:
            head = await process.stdout.readexactly(protocol.HEAD.size)
        except asyncio.IncompleteReadError:
            await asyncio.wait([complaining], timeout=_PAUSE_S)
            raise failure("run", self._stderr.text()) from None
        if protocol.HEAD.unpack(head) != (0, protocol.READY, 0):
            raise SandboxError(f"{SERVER_PYTHON} of the image {self._plan.image} does not run our first process")
        self._serving = asyncio.create_task(self._channels.serve())

    async def listen(self, *ports: int) -> list[socket.socket]:
        """Return sockets to which the first process carries connections to these ports; only this user reaches them."""
        with contextlib.ExitStack() as stack:
            opened = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in ports]
            for listening, port in zip(opened, ports, strict=True):
                listening.bind(str(self._gateway_socket(port)))
                listening.listen(BACKLOG)
            stack.pop_all()
        return opened

    def _gateway_socket(self, port: int) -> Path:
        return self.record.sockets / str(port)

    async def run(self, command: Command, stdout: OutputTail, stderr: OutputTail | None = None) -> int | None:
        return await self._run(command, stdout, stderr, command.timeout_s)

    async def run_server(self, command: Command) -> SandboxExit:
        listens = replace(command, env={**command.env, "GEPA_LISTEN": f"127.0.0.1:{PORT}"})
        listening = await asyncio.start_unix_server(self._connect, self.record.server, backlog=BACKLOG)
        try:
            return SandboxExit("exited", await self._run(listens, self.log, None, None))
        finally:
            listening.close()

    async def _run(
        self, command: Command, stdout: OutputTail, stderr: OutputTail | None, timeout_s: float | None
    ) -> int | None:
        env = {**self.variables, **command.env}
        order: dict[str, object] = {"run": list(command.argv), "env": env, "joined": stderr is None}
        with command.open_input() as stdin:
            try:
                channel = await self._open({**order, "options": [f"--folder={command.cwd}", *self._options]})
                feeding = asyncio.create_task(_feed(channel, stdin))
                following = asyncio.create_task(_follow(channel, stdout, stdout if stderr is None else stderr))
                try:
                    await asyncio.wait([following], timeout=timeout_s)
                    late = not following.done()
                finally:
                    feeding.cancel()
                    await await_shielded(_stopped(channel, following))
                return None if late else following.result()
            except BrokenChannels as error:
                raise SandboxGone(f"the container of sandbox {self.id} has ended") from error

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry a connection of this machine to the server."""
        try:
            channel = await self._open({"connect": PORT})
            await protocol.carry(channel, reader, writer)
            channel.close()
        except BrokenChannels:
            writer.transport.abort()

    async def close(self) -> None:
        """Remove it, and its record. Raises `SandboxError` if it is left."""
        await await_shielded(self._close())

    async def _close(self) -> None:
        name, process = container_name(self.id), self._process
        if process is not None:
            assert process.stdin is not None  # noqa: S101  it is a pipe
            process.stdin.close()
            async with asyncio.timeout(END_S):
                while True:  # docker may still be making it
                    await asyncio.to_thread(remove_containers, [name])
                    if process.returncode is not None:
                        break
                    await asyncio.wait([asyncio.ensure_future(process.wait())], timeout=_PAUSE_S)
        if self._serving is not None:
            await asyncio.wait([self._serving], timeout=END_S)
        await asyncio.to_thread(self.records.remove, self.record)

    async def _open(self, purpose: dict[str, object]) -> Channel:
        assert self._channels is not None, "it was started"  # noqa: S101
        return await self._channels.open(purpose)

    async def _accepted(self, channel: Channel, purpose: dict[str, object]) -> None:
        """Carry a connection of the container to the gateway's socket for this port; refuse any other."""
        port = purpose.get("port")
        try:
            if port not in (MODELS_PORT, TUNNEL_PORT):
                raise ConnectionRefusedError
            reader, writer = await asyncio.open_unix_connection(self._gateway_socket(port))
        except OSError:
            await channel.send(protocol.STOP)
            return
        await protocol.carry(channel, reader, writer)


async def _stopped(channel: Channel, following: "asyncio.Task[int]") -> None:
    """End a command that still runs, and wait until it has."""
    with contextlib.suppress(BrokenChannels):
        if not following.done():
            await channel.send(protocol.STOP)
            await asyncio.wait([following], timeout=END_S)
    channel.close()
    if not following.done():
        following.cancel()
        raise SandboxError(f"a command does not end within {END_S:g} s")
    following.exception()  # retrieved


async def _follow(channel: Channel, stdout: OutputTail, stderr: OutputTail) -> int:
    """Add the output of a command to these, and return its status."""
    while True:
        kind, content = await channel.next()
        if kind == protocol.STATUS:
            return int(content)
        if kind in (protocol.DATA, protocol.ERRORS):
            (stdout if kind == protocol.DATA else stderr).add(content)


async def _feed(channel: Channel, stdin: IO[bytes]) -> None:
    with contextlib.suppress(BrokenChannels):
        while data := await asyncio.to_thread(stdin.read, protocol.PIECE):
            await channel.send(protocol.DATA, data)
        await channel.send(protocol.END)


async def _read(stream: asyncio.StreamReader, tail: OutputTail) -> None:
    while data := await stream.read(protocol.PIECE):
        tail.add(data)
