"""Backends whose sandboxes have records on this machine: each makes its own containers, and the rest is the same."""

import asyncio
import socket
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol
from urllib.parse import quote

from evolverpc_common.output_tail import OutputTail
from evolverpc_common.shielded import run_shielded
from sandbox_runtime.api.sandbox import SandboxExit, SandboxGone, SandboxInfo, ServerEndpoint
from sandbox_runtime.api.spec import MEMORY_VARIABLE, Command, SandboxSpec
from sandbox_runtime.backends.local_steps import gateway_variables
from sandbox_runtime.backends.records import SandboxRecord, SandboxRecords
from sandbox_runtime.runtime.sandbox import end_after_failure


class Container(Protocol):
    """What a sandbox runs in. Call `start`, and `close` in any case."""

    @property
    def record(self) -> SandboxRecord:
        """Its record, which is there until it is closed."""
        ...

    async def start(self) -> None:
        """Start it, without a command. Raises `SandboxError`, `OSError`."""
        ...

    async def listen(self, *ports: int) -> Sequence[socket.socket]:
        """Return sockets for connections to these ports of the loopback that its commands see.

        If that is this machine's own, they are TCP sockets at any ports. Raises `SandboxError`, `OSError`.
        """
        ...

    async def run(
        self, command: Command, env: Mapping[str, str], stdout: OutputTail, stderr: OutputTail | None = None
    ) -> int | None:
        """See `StartedSandbox.run`; `env`: all variables."""
        ...

    async def serve(self, command: Command, env: Mapping[str, str]) -> SandboxExit:
        """Run the server, at the socket of the record, until it ends. Raises `SandboxGone`, `SandboxError`, `OSError`.

        Its output goes to the log of the sandbox.
        """
        ...

    async def close(self) -> None:
        """End it and free everything of it, also its record. Raises `SandboxError`, `OSError` if something is left."""
        ...


class LocalBackend(ABC):
    """See `Backend`. `found` and `stop` need not be opened before. `records`: replaces those of this user."""

    name: ClassVar[str]

    def __init__(self, records: SandboxRecords | None) -> None:
        self._records = records or SandboxRecords(self.name)
        self._containers: dict[str, Container] = {}

    @abstractmethod
    async def make(self, spec: SandboxSpec, log: OutputTail) -> tuple[Container, Mapping[str, str]]:
        """Return a container that is not started, and the variables that name its folders and its user.

        Raises as `Backend.start`.
        """

    @staticmethod
    @abstractmethod
    def free(record: SandboxRecord) -> None:
        """End everything of a sandbox of any process. Blocks. Raises `SandboxError`, `OSError` if something is left."""

    async def start(self, spec: SandboxSpec, log: OutputTail) -> "LocalSandbox":
        container, own = await self.make(spec, log)
        id_ = container.record.id
        self._containers[id_] = container
        try:
            await container.start()
            gateway = await gateway_variables(spec.gateway_session, container.listen)
        except BaseException:
            await end_after_failure(self.stop(id_))
            raise
        return LocalSandbox(spec, container, self._records, {**own, **gateway, **spec.env, **spec.secrets})

    async def stop(self, id_: str) -> None:
        container = self._containers.get(id_)
        if container is None:
            await run_shielded(self._records.free, id_, self.free)
        else:
            await container.close()
            self._containers.pop(id_, None)

    async def found(self, labels: Mapping[str, str] | None = None) -> Sequence[SandboxInfo]:
        """See `Backend.found`; those that this machine started."""
        return [record.found() for record in await asyncio.to_thread(self._records.all, labels)]


@dataclass(frozen=True)
class LocalSandbox:
    """See `StartedSandbox`. `variables`: of all its commands."""

    spec: SandboxSpec
    container: Container
    records: SandboxRecords
    variables: Mapping[str, str] = field(repr=False)

    @property
    def id(self) -> str:
        return self.container.record.id

    async def run(self, command: Command, stdout: OutputTail, stderr: OutputTail | None = None) -> int | None:
        return await self.container.run(command, {**self.variables, **command.env}, stdout, stderr)

    async def serve(self, endpoint: ServerEndpoint) -> SandboxExit:
        main = self.spec.main
        own = {"GEPA_TOKEN": endpoint.token, MEMORY_VARIABLE: str(self.spec.limits.memory_mb)}
        try:
            ended = await self.container.serve(main, {**self.variables, **main.env, **own})
        except SandboxGone:
            ended = SandboxExit("terminated", detail="ended from outside")
        swept = self.records.is_swept(self.container.record)
        return SandboxExit("terminated", detail="swept") if swept else ended

    async def endpoint(self, token: str) -> ServerEndpoint:
        """Return the address of its server: a unix socket. Raises `OSError` if its path is too long."""
        return ServerEndpoint(f"http+unix://{quote(str(self.container.record.server), safe='')}", token)
