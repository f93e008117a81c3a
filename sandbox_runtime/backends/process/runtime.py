"""Start, find and sweep sandboxes that are plain processes."""

import asyncio
import contextlib
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from evolverpc_common.files import remove_tree
from evolverpc_common.process_identity import started_at
from evolverpc_common.shielded import await_shielded
from sandbox_runtime.api.egress import Open
from sandbox_runtime.api.sandbox import (
    EgressNotEnforced,
    EnvironmentMissing,
    RuntimeUnavailable,
    SandboxError,
    SandboxInfo,
    SandboxNotReady,
)
from sandbox_runtime.api.spec import PreparedEnvironment, Recipe, SandboxSpec
from sandbox_runtime.backends.lifecycle import close_after_failure, close_all, sweep_records
from sandbox_runtime.backends.process.commands import run_build
from sandbox_runtime.backends.process.marked_processes import end_all, terminate_reapers
from sandbox_runtime.backends.process.sandbox import ProcessSandbox
from sandbox_runtime.backends.records import SandboxRecord, SandboxRecords, is_private, private_folder
from sandbox_runtime.environments import EnvironmentCache

NO_ISOLATION_WARNING = (
    "The process backend isolates nothing: programs run as you do, read your files, reach your network, and may end "
    "your processes. It is for development with code that you trust; use bubblewrap or modal for any other."
)

_WORKSPACE = "work-{}"

logger = logging.getLogger(__name__)


class ProcessRuntime:
    """See `Runtime`. It isolates nothing, and logs that when it is entered.

    It limits the private memory of each command (by rlimit; not of the server and its programs, because native code may
    not survive an allocation that is refused), the size of each file, the lifetime, and the output that is kept. It
    does not limit the total of memory and files, the number of processes, and cpu.

    `environments`: the folder of built environments. `records`: replaces those of this user. `workspaces`: the folder
    that workspaces are made in, by default below the folder for temporary files.
    """

    name = "process"

    def __init__(
        self, *, environments: Path | None = None, records: SandboxRecords | None = None, workspaces: Path | None = None
    ) -> None:
        self._workspaces = workspaces or Path(tempfile.gettempdir()) / f"evolverpc-{os.getuid()}"
        self._environments = EnvironmentCache(environments)
        self._records = records or SandboxRecords(self.name)
        self._sandboxes: dict[str, ProcessSandbox] = {}
        self._entered = False

    async def __aenter__(self) -> Self:
        if not _is_known_here():
            raise RuntimeUnavailable("the process backend needs Linux, version 5.3 or later, with /proc mounted")
        logger.warning(NO_ISOLATION_WARNING)
        self._entered = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._entered = False
        await await_shielded(close_all(self._sandboxes.values()))

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
        )

    async def start(self, spec: SandboxSpec) -> ProcessSandbox:
        if not self._entered:
            raise RuntimeUnavailable("the process backend starts sandboxes within its `async with` block only")
        _check(spec)
        sandbox = self._create(spec)
        await sandbox.begin()
        self._sandboxes[sandbox.id] = sandbox
        if not self._entered:
            await close_after_failure(sandbox)
            raise RuntimeUnavailable("the process backend's `async with` block has ended")
        return sandbox

    async def found(self, labels: Mapping[str, str] | None = None) -> Sequence[SandboxInfo]:
        return [record.found() for record in await asyncio.to_thread(self._records.all, labels)]

    async def sweep(self, labels: Mapping[str, str] | None = None, *, orphans_only: bool = True) -> list[str]:
        return await sweep_records(self._records, labels, self._sandboxes, self._end, orphans_only=orphans_only)

    def _create(self, spec: SandboxSpec) -> ProcessSandbox:
        try:
            root = private_folder(self._workspaces)
            record = self._records.add(spec.labels)
        except OSError as error:
            raise SandboxNotReady(f"create: {error}", stage="create") from error
        workspace = root / _WORKSPACE.format(record.id)
        try:
            record = self._records.update(record, {"workspace": str(workspace)})
            for folder in (workspace, workspace / "home", workspace / "tmp"):
                folder.mkdir(mode=0o700)
        except OSError as error:
            with contextlib.suppress(OSError):  # the first error is raised; a sweep finds the rest
                remove_tree(workspace)
                self._records.remove(record)
            raise SandboxNotReady(f"create: {error}", stage="create") from error
        return ProcessSandbox(spec, record, self._records, workspace, self._forget)

    def _forget(self, sandbox: ProcessSandbox) -> None:
        self._sandboxes.pop(sandbox.id, None)

    def _end(self, record: SandboxRecord) -> None:
        """End everything of a sandbox that has no owner in this process. Blocks."""
        self._records.condemn(record)
        terminate_reapers(record.id)
        left = end_all(record.id, lambda: _leader(record))
        if left:
            raise SandboxError(f"processes {sorted(left)} cannot be ended")
        name = _WORKSPACE.format(record.id)
        for folder in {self._workspaces / name, Path(str(record.resources.get("workspace", "")))}:
            if folder.name == name and is_private(folder.parent):
                remove_tree(folder)
        self._records.remove(record)


def _check(spec: SandboxSpec) -> None:
    if spec.egress != Open():
        raise EgressNotEnforced(
            f"the process backend cannot enforce {spec.egress}: its processes reach what you reach. "
            "Use bubblewrap or modal, or allow every host"
        )
    needed = (*spec.prepared.path, *spec.prepared.mounts, *filter(None, [spec.prepared.python]))
    missing = [path for path in needed if not Path(path).exists()]
    if missing:
        raise EnvironmentMissing(f"{missing[0]} is gone: prepare the environment again")


def _is_known_here() -> bool:
    return hasattr(os, "pidfd_open") and Path("/proc/self/environ").exists()


def _leader(record: SandboxRecord) -> int | None:
    """Return the pid of its server if that still runs."""
    match record.resources.get("main"):
        case [int(pid), int(started)] if started_at(pid) == started:
            return pid
    return None
