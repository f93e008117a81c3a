"""Start, find and sweep sandboxes that are plain processes."""

import logging
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from evolverpc_common.files import remove_tree
from sandbox_runtime.api.egress import Open
from sandbox_runtime.api.sandbox import EgressNotEnforced, RuntimeUnavailable
from sandbox_runtime.api.spec import PreparedEnvironment, Recipe, SandboxSpec
from sandbox_runtime.backends.local_runtime import LocalRuntime
from sandbox_runtime.backends.local_sandbox import LocalSandbox
from sandbox_runtime.backends.process.commands import end_marked, run_build
from sandbox_runtime.backends.process.sandbox import ProcessSandbox
from sandbox_runtime.backends.records import SandboxRecord, SandboxRecords, is_private, private_folder

NO_ISOLATION_WARNING = (
    "The process backend isolates nothing: programs run as you do, read your files, reach your network, and may end "
    "your processes. It is for development with code that you trust; use bubblewrap or modal for any other."
)

_WORKSPACE = "work-{}"

logger = logging.getLogger(__name__)


class ProcessRuntime(LocalRuntime):
    """See `LocalRuntime`. It isolates nothing, and logs that when it is entered.

    It limits the private memory of each command (by rlimit; not of the server and its programs, because native code may
    not survive an allocation that is refused), the size of each file, the lifetime, and the output that is kept. It
    does not limit the total of memory and files, the number of processes, and cpu. A program that kills the reaper
    above it leaves its processes behind.

    `workspaces`: the folder that workspaces are made in, by default below the folder for temporary files.
    """

    name = "process"

    def __init__(
        self, *, environments: Path | None = None, records: SandboxRecords | None = None, workspaces: Path | None = None
    ) -> None:
        super().__init__(environments, records)
        self._workspaces = workspaces or Path(tempfile.gettempdir()) / f"evolverpc-{os.getuid()}"

    async def open(self) -> None:
        if not _is_supported():
            raise RuntimeUnavailable("the process backend needs Linux, version 5.3 or later, with /proc mounted")
        logger.warning(NO_ISOLATION_WARNING)

    async def prepare(
        self, recipe: Recipe, *, on_progress: Callable[[str], None], rebuild: bool = False
    ) -> PreparedEnvironment:
        built = await self.environments.ready(recipe, run=run_build, on_progress=on_progress, rebuild=rebuild)
        return PreparedEnvironment(
            recipe=recipe,
            server=(sys.executable, "-I", "-m", "rpc_server", "--no-jail"),
            python=built.python,
            path=built.path,
            mounts=built.mounts,
            env=built.env,
            import_paths=built.import_paths,
        )

    def check(self, spec: SandboxSpec) -> None:
        if spec.egress != Open():
            raise EgressNotEnforced(
                f"the process backend cannot enforce {spec.egress}: its processes reach what you reach. "
                "Use bubblewrap or modal, or allow every host"
            )

    def create(self, spec: SandboxSpec, ended: Callable[[LocalSandbox], None]) -> ProcessSandbox:
        root = private_folder(self._workspaces)
        record = self.records.add(spec.labels, lambda id_: {"workspace": str(root / _WORKSPACE.format(id_))})
        return ProcessSandbox(spec, record, self.records, Path(record.resources["workspace"]), ended)

    def end(self, record: SandboxRecord) -> None:
        end_marked(record.id)
        name = _WORKSPACE.format(record.id)
        for folder in {self._workspaces / name, Path(str(record.resources.get("workspace", "")))}:
            if folder.name == name and is_private(folder.parent):
                remove_tree(folder)


def _is_supported() -> bool:
    return hasattr(os, "pidfd_open") and Path("/proc/self/cmdline").exists()
