"""The Docker backend: each sandbox is a container without a network, on this machine or that of a remote daemon."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from evolverpc_common.output_tail import OutputTail
from evolverpc_common.shielded import await_shielded, run_shielded
from sandbox_runtime.api.egress import GatewaySession
from sandbox_runtime.api.sandbox import (
    EnvironmentMissing,
    SandboxExit,
    SandboxGone,
    SandboxInfo,
    ServerEndpoint,
)
from sandbox_runtime.api.spec import (
    MEMORY_VARIABLE,
    STANDARD_PATH,
    Command,
    PreparedEnvironment,
    Recipe,
    SandboxSpec,
)
from sandbox_runtime.backends.docker import images
from sandbox_runtime.backends.docker.container import Container, ContainerPlan, container_name, listen
from sandbox_runtime.backends.docker.docker_command import check_daemon, image_id, remove_containers
from sandbox_runtime.backends.image_setup import PORT, SERVER_PYTHON, WORKSPACE
from sandbox_runtime.backends.local_steps import BACKLOG, check_egress, endpoint_of, variables_of
from sandbox_runtime.backends.records import SandboxRecord, SandboxRecords
from sandbox_runtime.runtime.sandbox import end_after_failure


class DockerBackend:
    """See `Backend`. `found` and `stop` need not be opened before.

    A container has no network: its first process carries connections over its stdin and stdout. It enforces memory,
    processes, cpu and lifetime; `workspace_mb` limits `/workspace` and `/tmp`, each. Its server runs without a jail, so
    that code candidates are not separated from each other.

    `build_gateway_session`: what a build may reach, by default nothing. `records`: replaces those of this user.
    """

    name = "docker"

    def __init__(
        self, *, build_gateway_session: GatewaySession | None = None, records: SandboxRecords | None = None
    ) -> None:
        self._build_session = build_gateway_session
        self._records = records or SandboxRecords(self.name)
        self._containers: dict[str, Container] = {}

    async def open(self) -> None:
        await asyncio.to_thread(check_daemon)

    async def prepare(
        self, recipe: Recipe, *, on_progress: Callable[[str], None], rebuild: bool = False
    ) -> PreparedEnvironment:
        return await images.ready(recipe, self._records, self._build_session, on_progress=on_progress, rebuild=rebuild)

    async def start(self, spec: SandboxSpec, log: OutputTail) -> "DockerSandbox":
        check_egress(spec, self.name)
        image = spec.prepared.image
        if image is None or await asyncio.to_thread(image_id, image) is None:
            raise EnvironmentMissing(f"the daemon has no image {image}: prepare the environment again")
        record = self._records.add(spec.labels)
        container = Container(ContainerPlan(record.id, image, SERVER_PYTHON, spec.limits, record.sockets))
        self._containers[record.id] = container
        try:
            own = spec.prepared.variables(WORKSPACE, STANDARD_PATH)
            variables = await variables_of(spec, own, partial(listen, record.sockets))
            await container.start()
        except BaseException:
            await end_after_failure(self.stop(record.id))
            raise
        return DockerSandbox(spec, record, self._records, container, variables, log)

    async def stop(self, id_: str) -> None:
        await await_shielded(self._stop(id_))

    async def found(self, labels: Mapping[str, str] | None = None) -> Sequence[SandboxInfo]:
        """See `Backend.found`; those that this machine started, at any daemon."""
        return [record.found() for record in await asyncio.to_thread(self._records.all, labels)]

    async def _stop(self, id_: str) -> None:
        container = self._containers.get(id_)
        if container is not None:
            await container.close()
        await run_shielded(self._records.free, id_, _remove)
        self._containers.pop(id_, None)


@dataclass(frozen=True)
class DockerSandbox:
    """See `StartedSandbox`. `variables`: of all its commands."""

    spec: SandboxSpec
    record: SandboxRecord
    records: SandboxRecords
    container: Container
    variables: Mapping[str, str] = field(repr=False)
    log: OutputTail

    @property
    def id(self) -> str:
        return self.record.id

    async def run(self, command: Command, stdout: OutputTail, stderr: OutputTail | None = None) -> int | None:
        return await self.container.run(command, {**self.variables, **command.env}, stdout, stderr, timed=True)

    async def serve(self, endpoint: ServerEndpoint) -> SandboxExit:
        main = self.spec.main
        own = {
            "GEPA_LISTEN": f"127.0.0.1:{PORT}",
            "GEPA_TOKEN": endpoint.token,
            MEMORY_VARIABLE: str(self.spec.limits.memory_mb),
        }
        env = {**self.variables, **main.env, **own}

        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self.container.connect(PORT, reader, writer)

        listening = await asyncio.start_unix_server(accepted, self.record.server, backlog=BACKLOG)
        try:
            status = await self.container.run(Command(main.argv, main.cwd), env, self.log, None, timed=False)
        except SandboxGone:
            how = "swept" if self.records.is_swept(self.record) else "its container was ended from outside"
            return SandboxExit("terminated", detail=how)
        finally:
            listening.close()
        return SandboxExit("exited", status)

    async def endpoint(self, token: str) -> ServerEndpoint:
        return endpoint_of(self.record, token)


def _remove(record: SandboxRecord) -> None:
    remove_containers([container_name(record.id)])
