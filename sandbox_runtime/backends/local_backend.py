"""Backends whose sandboxes have records on this machine: each makes its own containers, and the rest is the same."""

import asyncio
import socket
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from urllib.parse import quote

from evolverpc_common.output_tail import OutputTail
from evolverpc_common.shielded import run_shielded
from sandbox_runtime.api.sandbox import SandboxExit, SandboxGone, SandboxInfo, ServerEndpoint
from sandbox_runtime.api.spec import MEMORY_VARIABLE, Command, ResourceLimits, SandboxSpec
from sandbox_runtime.backends.local_steps import gateway_variables
from sandbox_runtime.backends.records import SandboxRecord, SandboxRecords
from sandbox_runtime.runtime import Runtime
from sandbox_runtime.runtime.sandbox import end_after_failure


class LocalContainer(ABC):
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
    async def run(self, command: Command, stdout: OutputTail, stderr: OutputTail | None = None) -> int | None:
        """See `StartedSandbox.run`."""

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
            ended = SandboxExit("terminated", detail="ended from outside")
        return SandboxExit("terminated", detail="swept") if self.records.is_swept(self.record) else ended

    async def endpoint(self, token: str) -> ServerEndpoint:
        """Return the address of its server: a unix socket. Raises `OSError` if its path is too long."""
        return ServerEndpoint(f"http+unix://{quote(str(self.record.server), safe='')}", token)


class LocalBackend(Runtime):
    """See `Runtime`. `found` and `stop` need not be opened before. `records`: replaces those of this user."""

    def __init__(self, records: SandboxRecords | None) -> None:
        super().__init__()
        self._records = records or SandboxRecords(self.name)
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
