"""A sandbox as the loopback Modal keeps it: what was asked of it, its machine, its commands and how it ended."""

import asyncio
import contextlib
import ipaddress
import socket
import time
import uuid
from collections.abc import Iterable, Mapping

from grpclib import GRPCError, Status
from modal_proto import api_pb2
from modal_proto import task_command_router_pb2 as router_pb2

from tests.support.modal_cloud.machine import Machine, Running

Result = api_pb2.GenericResult

BASE_ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}


class Box:
    """`asked`: the request that made it; `execs`: those for its commands, in order. `ended`: how, when it has."""

    def __init__(self, asked: api_pb2.SandboxCreateV2Request) -> None:
        number = uuid.uuid4().hex
        self.id = f"sb-{number}"  # longer than a version 1 sandbox's, as the SDK distinguishes them by length
        self.task_id = f"ta-{number}V"
        self.asked = asked
        self.definition = asked.definition
        self.tags = {tag.tag_name: tag.tag_value for tag in asked.tags}
        self.created = time.time()
        self.execs: list[router_pb2.TaskExecStartRequest] = []
        self.commands: dict[str, Running] = {}
        self.ended: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._machine = Machine.start(self.definition.workdir or "/root")
        self._tasks: list[asyncio.Task[None]] = []
        self._starting = asyncio.Lock()

    @property
    def argv(self) -> list[list[str]]:
        """Of everything that was ever run in it."""
        return [list(self.definition.entrypoint_args), *(list(started.command_args) for started in self.execs)]

    async def begin(self, reachable: Iterable[int]) -> None:
        """Run its entrypoint, and make those of the host's loopback ports reachable that its egress lets through."""
        if self._may_reach_loopback():
            for port in reachable:
                listening = await self._machine.listen("127.0.0.1", port)
                self._tasks.append(asyncio.create_task(_relay(listening, port)))
        main = await self._machine.execute(self.definition.entrypoint_args, self._env(()), self._workdir())
        self._tasks.append(asyncio.create_task(self._follow(main)))
        self._tasks.append(asyncio.create_task(self._lifetime()))

    async def start(self, asked: router_pb2.TaskExecStartRequest) -> None:
        """Start a command; the same `exec_id` twice is one."""
        self.check_runs()
        async with self._starting:
            if asked.exec_id in self.commands:
                return
            self.execs.append(asked)
            try:
                self.commands[asked.exec_id] = command = await self._machine.execute(
                    asked.command_args, self._env(asked.secret_sources), asked.workdir or self._workdir()
                )
            except ConnectionError as error:
                raise GRPCError(Status.NOT_FOUND, str(error)) from error
            except OSError as error:
                raise GRPCError(Status.INVALID_ARGUMENT, str(error)) from error
        if asked.timeout_secs:
            self._tasks.append(asyncio.create_task(self._time_limit(command, asked.timeout_secs)))

    def command(self, exec_id: str) -> Running:
        """One that was started."""
        try:
            return self.commands[exec_id]
        except KeyError:
            raise GRPCError(Status.NOT_FOUND, f"no command {exec_id}") from None

    def check_runs(self) -> None:
        """As everything does that is asked of one that has ended."""
        if self.ended.done():
            raise GRPCError(Status.NOT_FOUND, f"sandbox {self.id} has ended")

    async def unconnected(self) -> socket.socket:
        """For a connection to a port of it."""
        return await self._machine.unconnected()

    async def end(self, status: "Result.GenericStatus.ValueType", exitcode: int = 0) -> None:
        """However that comes; a second end is none."""
        if not self.ended.done():
            self.ended.set_result(Result(status=status, exitcode=exitcode))
        await self._machine.end()

    async def close(self) -> None:
        """Free everything of it."""
        await self.end(Result.GENERIC_STATUS_TERMINATED)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow(self, main: Running) -> None:
        status = await main.ended
        if status is not None:
            outcome = Result.GENERIC_STATUS_FAILURE if status else Result.GENERIC_STATUS_SUCCESS
            await self.end(outcome, status if status >= 0 else 128 - status)
        elif not self.ended.done():
            self.ended.set_result(Result(status=Result.GENERIC_STATUS_FAILURE, exitcode=137))

    async def _lifetime(self) -> None:
        await asyncio.sleep(self.definition.timeout_secs)
        await self.end(Result.GENERIC_STATUS_TIMEOUT)

    async def _time_limit(self, command: Running, limit_s: int) -> None:
        done, _ = await asyncio.wait([command.ended], timeout=limit_s)
        if not done:
            with contextlib.suppress(ConnectionError):
                await self._machine.kill(command)

    def _workdir(self) -> str:
        return self.definition.workdir or "/root"

    def _env(self, further: Iterable[api_pb2.SecretSource]) -> Mapping[str, str]:
        env = dict(BASE_ENV)
        for source in (*self.asked.secret_sources, *further):
            env |= source.env.contents
        return env

    def _may_reach_loopback(self) -> bool:
        access = self.definition.network_access
        if access.network_access_type != api_pb2.NetworkAccess.ALLOWLIST:
            return access.network_access_type == api_pb2.NetworkAccess.OPEN
        here = ipaddress.ip_address("127.0.0.1")
        return any(here in ipaddress.ip_network(cidr) for cidr in access.allowed_cidrs)


async def _relay(listening: socket.socket, port: int) -> None:
    connections: set[asyncio.Task[None]] = set()

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(both_ways(reader, writer, port))
        connections.add(task)
        task.add_done_callback(connections.discard)

    try:
        async with await asyncio.start_server(accepted, sock=listening) as server:
            await server.serve_forever()
    finally:
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


async def both_ways(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    """Carry a connection to a port of the host's loopback, in both directions."""
    with contextlib.closing(writer):
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionError:
            return
        with contextlib.closing(up_writer):
            await asyncio.gather(_copy(reader, up_writer), _copy(up_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(2**16):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
        else:
            writer.close()  # TLS ends in both directions at once
    except OSError:  # ConnectionError, or ENOTCONN from `write_eof`
        writer.close()  # ends the other direction too
