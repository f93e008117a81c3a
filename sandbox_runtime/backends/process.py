"""Sandboxes that are plain processes of this machine, for development: they isolate nothing."""

import contextlib
import logging
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from evolverpc_common.output_tail import OutputTail
from evolverpc_common.shielded import run_shielded
from sandbox_runtime.api.sandbox import EgressNotEnforced, RuntimeUnavailable, SandboxExit
from sandbox_runtime.api.spec import STANDARD_PATH, Command, Open, PreparedEnvironment, Recipe, SandboxSpec
from sandbox_runtime.backends.local_backend import (
    LocalBackend,
    LocalContainer,
    check_environment,
    input_of,
    server_socket,
)
from sandbox_runtime.backends.process_commands import end_marked, run_build, run_command
from sandbox_runtime.backends.records import SandboxRecord
from sandbox_runtime.environments.cache import EnvironmentCache

NO_ISOLATION_WARNING = (
    "The process backend isolates nothing: programs run as you do, read your files, reach your network, and may end "
    "your processes. It is for development with code that you trust; use bubblewrap, docker or modal for any other."
)

logger = logging.getLogger(__name__)


class ProcessBackend(LocalBackend):
    """See `LocalBackend`. It isolates nothing, and logs that when it is opened.

    It limits the private memory of each command (by rlimit; not of the server and its programs, because native code may
    not survive an allocation that is refused), the size of each file, the lifetime, and the output that is kept. It
    does not limit the total of memory and files, the number of processes, and cpu. A program that kills the reaper
    above it leaves its processes behind.
    """

    name = "process"

    def __init__(self) -> None:
        super().__init__()
        self._environments = EnvironmentCache()

    async def open(self) -> None:
        if not (hasattr(os, "pidfd_open") and os.access("/proc/self/cmdline", os.R_OK)):
            raise RuntimeUnavailable("the process backend needs Linux, version 5.3 or later, with /proc mounted")
        logger.warning(NO_ISOLATION_WARNING)

    async def prepare(
        self, recipe: Recipe, *, on_progress: Callable[[str], None], rebuild: bool = False
    ) -> PreparedEnvironment:
        built = await self._environments.ready(recipe, run=run_build, on_progress=on_progress, rebuild=rebuild)
        server = (sys.executable, "-I", "-m", "rpc_server", "--no-jail")
        return PreparedEnvironment(**vars(built), recipe=recipe, server=server)

    async def make(self, spec: SandboxSpec, log: OutputTail) -> "ProcessContainer":
        if spec.egress != Open():
            raise EgressNotEnforced(
                f"the process backend cannot enforce {spec.egress}: its processes reach what you reach. "
                "Use bubblewrap, docker or modal, or allow every host"
            )
        check_environment(spec.prepared)
        container = ProcessContainer(self._records, spec.labels, spec.limits, log)
        workspace = container.workspace
        own = spec.prepared.variables(str(workspace), STANDARD_PATH)
        if spec.prepared.import_paths:
            own["PYTHONPATH"] = ":".join(f"{workspace}/program/{path}" for path in spec.prepared.import_paths)
        container.variables = own
        return container

    @staticmethod
    def free(record: SandboxRecord) -> None:
        end_marked(record.id)


class ProcessContainer(LocalContainer):
    """See `LocalContainer`: a folder for its workspace, in that of its record."""

    @property
    def workspace(self) -> Path:
        """Its workspace."""
        return self.record.folder / "workspace"

    async def start(self) -> None:
        for folder in (self.workspace, self.workspace / "home", self.workspace / "tmp"):
            folder.mkdir(mode=0o700)

    async def listen(self, *ports: int) -> list[socket.socket]:
        """Listen on this machine's loopback, at any ports that are free."""
        with contextlib.ExitStack() as stack:
            opened = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in ports]
            stack.pop_all()
        return opened

    async def run(self, command: Command, stdout: OutputTail, stderr: OutputTail | None = None) -> int | None:
        options = (*self._options(command), f"--memory={self.limits.memory_mb << 20}")
        env = {**self.variables, **command.env}
        async with input_of(command) as stdin:
            return await run_command(command.argv, options, env, stdin, stdout, stderr, timeout_s=command.timeout_s)

    async def run_server(self, command: Command) -> SandboxExit:
        options, env = self._options(command), {**self.variables, **command.env, "GEPA_LISTEN": "fd:3"}
        with server_socket(self.record) as listening:
            async with input_of(command) as stdin:
                status = await run_command(command.argv, options, env, stdin, self.log, listening=listening)
        return SandboxExit("exited", status)

    def _options(self, command: Command) -> tuple[str, ...]:
        folder, most = self.workspace / command.cwd, self.limits.workspace_mb << 20
        return (f"--mark={self.record.id}", f"--folder={folder}", f"--file-size={most}")

    async def close(self) -> None:
        await run_shielded(self.records.free, self.id, ProcessBackend.free)
