"""The Docker backend: each sandbox is a container without a network, on this machine or that of a remote daemon."""

import asyncio
from collections.abc import Callable

from evolverpc_common.output_tail import OutputTail
from sandbox_runtime.api.egress import GatewaySession
from sandbox_runtime.api.sandbox import EnvironmentMissing
from sandbox_runtime.api.spec import STANDARD_PATH, PreparedEnvironment, Recipe, SandboxSpec
from sandbox_runtime.backends.docker import images
from sandbox_runtime.backends.docker.container import Container, ContainerPlan, container_name
from sandbox_runtime.backends.docker.docker_command import check_daemon, image_id, remove_containers
from sandbox_runtime.backends.image_setup import WORKSPACE
from sandbox_runtime.backends.local_backend import LocalBackend
from sandbox_runtime.backends.local_steps import check_egress
from sandbox_runtime.backends.records import SandboxRecord, SandboxRecords


class DockerBackend(LocalBackend):
    """See `LocalBackend`; it finds sandboxes at any daemon.

    A container has no network: its first process carries connections over its stdin and stdout. It enforces memory,
    processes, cpu and lifetime; `workspace_mb` limits `/workspace` and `/tmp`, each. Its server runs without a jail, so
    that code candidates are not separated from each other.

    `build_gateway_session`: what a build may reach, by default nothing.
    """

    name = "docker"

    def __init__(
        self, *, build_gateway_session: GatewaySession | None = None, records: SandboxRecords | None = None
    ) -> None:
        super().__init__(records)
        self._build_session = build_gateway_session

    async def open(self) -> None:
        await asyncio.to_thread(check_daemon)

    async def prepare(
        self, recipe: Recipe, *, on_progress: Callable[[str], None], rebuild: bool = False
    ) -> PreparedEnvironment:
        return await images.ready(recipe, self._records, self._build_session, on_progress=on_progress, rebuild=rebuild)

    async def make(self, spec: SandboxSpec, log: OutputTail) -> Container:
        check_egress(spec, self.name)
        image = spec.prepared.image
        if image is None or await asyncio.to_thread(image_id, image) is None:
            raise EnvironmentMissing(f"the daemon has no image {image}: prepare the environment again")
        container = Container(self._records, spec.labels, ContainerPlan(image, spec.limits), log)
        container.variables = spec.prepared.variables(WORKSPACE, STANDARD_PATH)
        return container

    @staticmethod
    def free(record: SandboxRecord) -> None:
        remove_containers([container_name(record.id)])
