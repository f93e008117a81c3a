"""The bubblewrap backend: sandboxes in namespaces of their own on this machine, each one container."""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from evolverpc_common.output_tail import OutputTail
from evolverpc_common.shielded import run_shielded
from sandbox_runtime.api.sandbox import (
    EnvironmentMissing,
    RuntimeInterrupted,
    SandboxError,
    SandboxGone,
)
from sandbox_runtime.api.spec import Command, GatewaySession, PreparedEnvironment, Recipe, ResourceLimits, SandboxSpec
from sandbox_runtime.backends.bubblewrap.cgroups import find_control_groups
from sandbox_runtime.backends.bubblewrap.container import BUILDER, BackendContext, Container, free
from sandbox_runtime.backends.bubblewrap.container_command import (
    SERVER,
    VisiblePaths,
    own_variables,
    package_mounts,
)
from sandbox_runtime.backends.bubblewrap.prerequisites import bubblewrap
from sandbox_runtime.backends.image_setup import PACKAGES
from sandbox_runtime.backends.local_backend import LocalBackend, check_egress, check_environment, gateway_variables
from sandbox_runtime.environments.build_folder import certificate_bundle, trusting, without_passwords
from sandbox_runtime.environments.cache import EnvironmentCache

_OUTPUT_BYTES = 64 * 1024
_LOG_TAIL = 4096
_MEMORY_MB = 8192
_WORKSPACE_MB = 64
_PROCESSES = 1024


def _give(folder: Path, user: int) -> None:
    """Give a folder to the user that builds. Links are not followed."""
    for parent, folders, files in os.walk(folder):
        for path in (parent, *(f"{parent}/{name}" for name in (*folders, *files))):
            if os.lstat(path).st_uid != user:
                os.lchown(path, user, user)


logger = logging.getLogger(__name__)

_WITHOUT = {
    "memory": "memory is bounded for each process alone, and not for the server",
    "pids": "processes are bounded by a limit of the sandbox's user",
    "cpu": "of the cpu only the time of each process is bounded",
}


class BubblewrapBackend(LocalBackend):
    """See `LocalBackend`. `build_gateway_session`: what a build may reach, by default nothing."""

    name = "bubblewrap"

    def __init__(self, *, build_gateway_session: GatewaySession | None = None) -> None:
        super().__init__()
        self._environments = EnvironmentCache()
        self._build_session = build_gateway_session
        self._context: BackendContext | None = None

    async def open(self) -> None:
        rooted = os.geteuid() == 0
        path = await asyncio.to_thread(bubblewrap, BUILDER if rooted else None)
        groups = await asyncio.to_thread(find_control_groups)
        self._context = BackendContext(path, self._records, groups, rooted)
        logger.info("control groups (version %d) bound %s", groups.version, ", ".join(groups.parents) or "nothing")
        for name in groups.missing_controllers:
            logger.warning("no control group can be made for %s: %s", name, _WITHOUT[name])

    @property
    def context(self) -> BackendContext:
        """What its containers share, once it is opened."""
        assert self._context is not None, "it was opened"  # noqa: S101
        return self._context

    async def prepare(
        self, recipe: Recipe, *, on_progress: Callable[[str], None], rebuild: bool = False
    ) -> PreparedEnvironment:
        built = await self._environments.ready(recipe, run=self.run_build, on_progress=on_progress, rebuild=rebuild)
        mounts = tuple(dict.fromkeys((*package_mounts(*PACKAGES), *built.mounts)))
        return PreparedEnvironment(**{**vars(built), "mounts": mounts}, recipe=recipe, server=(*SERVER, "--jail"))

    async def run_build(
        self, argv: Sequence[str], cwd: Path, env: Mapping[str, str], timeout_s: float, readable: Sequence[str]
    ) -> tuple[int, bytes]:
        """Run one build command in a container, see `RunBuildCommand`; its network is the gateway only.

        Raises:
            EnvironmentMissing: it cannot be run, or needs more memory than a build has. TimeoutError: it took too long.
            RuntimeInterrupted: its container was not made, or ended before the command.
        """
        limits = ResourceLimits(float(os.cpu_count() or 1), _MEMORY_MB, _WORKSPACE_MB, _PROCESSES, timeout_s)
        user = self.context.user(builds=True)
        try:
            if user is not None:
                await run_shielded(_give, cwd, user)
            container = Container(self.context, {"purpose": "build"}, VisiblePaths(tuple(readable), cwd), limits)
            try:
                try:
                    await container.start()
                except SandboxError as error:
                    raise RuntimeInterrupted(
                        f"{argv[0]} cannot be run: {error}\n{container.log.text()[-_LOG_TAIL:]}".rstrip()
                    ) from error
                gateway = await gateway_variables(self._build_session, container.listen)
                command, variables = trusting(argv, {**without_passwords(env), **gateway})
                output = OutputTail(_OUTPUT_BYTES)
                status = await container.run(Command(command, timeout_s=timeout_s, env=variables), output)
                if status != 0 and container.has_lacked_memory():
                    raise EnvironmentMissing(f"{argv[0]} needs more than the {_MEMORY_MB} MiB of memory of a build")
            except SandboxGone as error:
                raise RuntimeInterrupted(f"{argv[0]} ended with its container, before it was done") from error
            finally:
                await container.close()
        except OSError as error:
            raise EnvironmentMissing(f"{argv[0]} cannot be run: {error}") from error
        if status is None:
            raise TimeoutError(f"{argv[0]} took longer than {timeout_s:g} s")
        return status, output.bytes()

    def container(self, labels: Mapping[str, str], visible: VisiblePaths, limits: ResourceLimits) -> Container:
        """Return a container without a server, for commands of the caller's own; it is not started.

        Raises:
            OSError: its record cannot be written.
        """
        return Container(self.context, labels, visible, limits)

    async def make(self, spec: SandboxSpec, log: OutputTail) -> Container:
        check_egress(spec, self.name)
        check_environment(spec.prepared)
        bundle = certificate_bundle()
        visible = VisiblePaths((*spec.prepared.mounts, *([] if bundle is None else [bundle])))
        container = Container(self.context, spec.labels, visible, spec.limits, log)
        container.variables = own_variables(spec.prepared)
        return container

    free = staticmethod(free)
