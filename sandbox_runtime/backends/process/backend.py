"""Sandboxes that are plain processes."""

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evolverpc_common.output_tail import OutputTail
from evolverpc_common.shielded import run_shielded
from sandbox_runtime.api.egress import Open
from sandbox_runtime.api.sandbox import (
    EgressNotEnforced,
    RuntimeUnavailable,
    SandboxExit,
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
from sandbox_runtime.backends.local_steps import check_environment, endpoint_of, server_socket, variables_of
from sandbox_runtime.backends.process.commands import ProcessLimits, RunningCommand, end_marked, run_build
from sandbox_runtime.backends.records import SandboxRecord, SandboxRecords
from sandbox_runtime.environments import EnvironmentCache
from sandbox_runtime.runtime.sandbox import end_after_failure

NO_ISOLATION_WARNING = (
    "The process backend isolates nothing: programs run as you do, read your files, reach your network, and may end "
    "your processes. It is for development with code that you trust; use bubblewrap, docker or modal for any other."
)

logger = logging.getLogger(__name__)


class ProcessBackend:
    """See `Backend`. It isolates nothing, and logs that when it is opened.

    It limits the private memory of each command (by rlimit; not of the server and its programs, because native code may
    not survive an allocation that is refused), the size of each file, the lifetime, and the output that is kept. It
    does not limit the total of memory and files, the number of processes, and cpu. A program that kills the reaper
    above it leaves its processes behind.

    `environments`: the folder of built environments, by default in the user's cache. `records`: replaces those of this
    user; a sandbox's workspace is in the folder of its record.
    """

    name = "process"

    def __init__(self, *, environments: Path | None = None, records: SandboxRecords | None = None) -> None:
        self._environments = EnvironmentCache(environments)
        self._records = records or SandboxRecords(self.name)

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

    async def start(self, spec: SandboxSpec, log: OutputTail) -> "ProcessSandbox":
        if spec.egress != Open():
            raise EgressNotEnforced(
                f"the process backend cannot enforce {spec.egress}: its processes reach what you reach. "
                "Use bubblewrap, docker or modal, or allow every host"
            )
        check_environment(spec.prepared)
        record = self._records.add(spec.labels)
        workspace = record.folder / "workspace"
        try:
            for folder in (workspace, workspace / "home", workspace / "tmp"):
                folder.mkdir(mode=0o700)
            own = spec.prepared.variables(str(workspace), STANDARD_PATH)
            if spec.prepared.import_paths:
                own["PYTHONPATH"] = ":".join(f"{workspace}/program/{path}" for path in spec.prepared.import_paths)
            variables = await variables_of(spec, own, _listen)
        except BaseException:
            await end_after_failure(self.stop(record.id))
            raise
        return ProcessSandbox(spec, record, self._records, workspace, variables, log)

    async def stop(self, id_: str) -> None:
        await run_shielded(self._records.free, id_, lambda record: end_marked(record.id))

    async def found(self, labels: Mapping[str, str] | None = None) -> Sequence[SandboxInfo]:
        return [record.found() for record in await asyncio.to_thread(self._records.all, labels)]


@dataclass(frozen=True)
class ProcessSandbox:
    """See `StartedSandbox`. `workspace`: a folder of its own. `variables`: of all its commands."""

    spec: SandboxSpec
    record: SandboxRecord
    records: SandboxRecords
    workspace: Path
    variables: Mapping[str, str] = field(repr=False)
    log: OutputTail

    @property
    def id(self) -> str:
        return self.record.id

    async def run(self, command: Command, stdout: OutputTail, stderr: OutputTail | None = None) -> int | None:
        running = RunningCommand.start(
            command.argv,
            mark=self.id,
            folder=self.workspace / command.cwd,
            env={**self.variables, **command.env},
            limits=ProcessLimits(self.spec.limits.memory_mb * 2**20, self.spec.limits.workspace_mb * 2**20),
            stdout=stdout,
            stderr=stderr,
            stdin=command.stdin,
        )
        return await running.status(command.timeout_s)

    async def serve(self, endpoint: ServerEndpoint) -> SandboxExit:
        main = self.spec.main
        own = {
            "GEPA_LISTEN": "fd:3",
            "GEPA_TOKEN": endpoint.token,
            MEMORY_VARIABLE: str(self.spec.limits.memory_mb),
        }
        with server_socket(self.record) as listening:
            running = RunningCommand.start(
                main.argv,
                mark=self.id,
                folder=self.workspace / main.cwd,
                env={**self.variables, **main.env, **own},
                limits=ProcessLimits(file=self.spec.limits.workspace_mb * 2**20),
                stdout=self.log,
                listening=listening,
            )
        status = await running.status()
        if self.records.is_swept(self.record):
            return SandboxExit("terminated", detail="swept")
        return SandboxExit("exited", status)

    async def endpoint(self, token: str) -> ServerEndpoint:
        return endpoint_of(self.record, token)


async def _listen(*ports: int) -> list[socket.socket]:
    """Listen on this machine's loopback, at any ports that are free."""
    opened: list[socket.socket] = []
    try:
        for _ in ports:
            opened.append(socket.create_server(("127.0.0.1", 0)))  # noqa: PERF401  closed below at a failure
    except OSError:
        for each in opened:
            each.close()
        raise
    return opened
