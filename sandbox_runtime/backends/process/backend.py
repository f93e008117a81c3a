"""Sandboxes that are plain processes."""

import contextlib
import logging
import os
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from evolverpc_common.output_tail import OutputTail
from evolverpc_common.shielded import run_shielded
from sandbox_runtime.api.egress import Open
from sandbox_runtime.api.sandbox import EgressNotEnforced, RuntimeUnavailable, SandboxExit
from sandbox_runtime.api.spec import STANDARD_PATH, Command, PreparedEnvironment, Recipe, SandboxSpec
from sandbox_runtime.backends.inputs import input_of
from sandbox_runtime.backends.local_backend import LocalBackend
from sandbox_runtime.backends.local_steps import check_environment, server_socket
from sandbox_runtime.backends.plain_commands import end_marked, run_build, run_command
from sandbox_runtime.backends.records import SandboxRecord, SandboxRecords
from sandbox_runtime.environments import EnvironmentCache

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

    `environments`: the folder of built environments, by default in the user's cache.
    """

    name = "process"

    def __init__(self, *, environments: Path | None = None, records: SandboxRecords | None = None) -> None:
        super().__init__(records)
        self._environments = EnvironmentCache(environments)

    async def open(self) -> None:
        if not (hasattr(os, "pidfd_open") and os.access("/proc/self/cmdline", os.R_OK)):
            raise RuntimeUnavailable("the process backend needs Linux, version 5.3 or later, with /proc mounted")
        logger.warning(NO_ISOLATION_WARNING)

    async def prepare(
        self, recipe: Recipe, *, on_progress: Callable[[str], None], rebuild: bool = False
    ) -> PreparedEnvironment:
        built = await self._environments.ready(recipe, run=run_build, on_progress=on_progress, rebuild=rebuild)
        return PreparedEnvironment(
            recipe=recipe,
            server=(sys.executable, "-I", "-m", "rpc_server", "--no-jail"),
            python=built.python,
            path=built.path,
            mounts=built.mounts,
            env=built.env,
            import_paths=built.import_paths,
        )

    async def make(self, spec: SandboxSpec, log: OutputTail) -> tuple["ProcessContainer", Mapping[str, str]]:
        if spec.egress != Open():
            raise EgressNotEnforced(
                f"the process backend cannot enforce {spec.egress}: its processes reach what you reach. "
                "Use bubblewrap, docker or modal, or allow every host"
            )
        check_environment(spec.prepared)
        container = ProcessContainer(self._records, spec, log)
        workspace = container.workspace
        own = spec.prepared.variables(str(workspace), STANDARD_PATH)
        if spec.prepared.import_paths:
            own["PYTHONPATH"] = ":".join(f"{workspace}/program/{path}" for path in spec.prepared.import_paths)
        return container, own

    @staticmethod
    def free(record: SandboxRecord) -> None:
        end_marked(record.id)


class ProcessContainer:
    """See `local_backend.Container`: a folder for its workspace, in that of its record."""

    def __init__(self, records: SandboxRecords, spec: SandboxSpec, log: OutputTail) -> None:
        self._records = records
        self._limits = spec.limits
        self._log = log
        self.record = records.add(spec.labels)
        self.workspace = self.record.folder / "workspace"

    async def start(self) -> None:
        for folder in (self.workspace, self.workspace / "home", self.workspace / "tmp"):
            folder.mkdir(mode=0o700)

    async def listen(self, *ports: int) -> list[socket.socket]:
        """Listen on this machine's loopback, at any ports that are free."""
        with contextlib.ExitStack() as stack:
            opened = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in ports]
            stack.pop_all()
        return opened

    async def run(
        self, command: Command, env: Mapping[str, str], stdout: OutputTail, stderr: OutputTail | None = None
    ) -> int | None:
        options = (*self._options(command), f"--memory={self._limits.memory_mb << 20}")
        async with input_of(command) as stdin:
            return await run_command(command.argv, options, env, stdin, stdout, stderr, timeout_s=command.timeout_s)

    async def serve(self, command: Command, env: Mapping[str, str]) -> SandboxExit:
        options, variables = self._options(command), {**env, "GEPA_LISTEN": "fd:3"}
        with server_socket(self.record) as listening:
            async with input_of(command) as stdin:
                status = await run_command(command.argv, options, variables, stdin, self._log, listening=listening)
        return SandboxExit("exited", status)

    def _options(self, command: Command) -> tuple[str, ...]:
        folder, most = self.workspace / command.cwd, self._limits.workspace_mb << 20
        return (f"--mark={self.record.id}", f"--folder={folder}", f"--file-size={most}")

    async def close(self) -> None:
        await run_shielded(self._records.free, self.record.id, ProcessBackend.free)
