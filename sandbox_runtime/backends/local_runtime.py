"""A runtime whose sandboxes are on this machine, with records of them, above what its backend does."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from evolverpc_common.shielded import await_shielded, run_shielded
from sandbox_runtime.api.sandbox import (
    EnvironmentMissing,
    RuntimeUnavailable,
    SandboxError,
    SandboxInfo,
    SandboxNotReady,
)
from sandbox_runtime.api.spec import PreparedEnvironment, SandboxSpec
from sandbox_runtime.backends.local_sandbox import LocalSandbox
from sandbox_runtime.backends.records import SandboxRecord, SandboxRecords
from sandbox_runtime.backends.shared_steps import close_after_failure, close_all
from sandbox_runtime.environments import EnvironmentCache

logger = logging.getLogger(__name__)


class LocalRuntime(ABC):
    """See `Runtime`. `found` and `sweep` need no `async with` block.

    `environments`: the folder of built environments, by default in the user's cache. `records`: replaces those of this
    user.
    """

    name: str

    def __init__(self, environments: Path | None, records: SandboxRecords | None) -> None:
        self.environments = EnvironmentCache(environments)
        self.records = records or SandboxRecords(self.name)
        self._sandboxes: dict[str, LocalSandbox] = {}
        self._starting: set[str] = set()
        self._entered = False

    @abstractmethod
    async def open(self) -> None:
        """Examine the machine, at the beginning of the block. Raises `RuntimeUnavailable`."""

    @abstractmethod
    def check(self, spec: SandboxSpec) -> None:
        """Raise `EgressNotEnforced` if it cannot enforce the spec's egress."""

    @abstractmethod
    def create(self, spec: SandboxSpec, ended: Callable[[LocalSandbox], None]) -> LocalSandbox:
        """Return a new sandbox with a record, which is not made yet. Raises `OSError`; then nothing is left."""

    @abstractmethod
    def end(self, record: SandboxRecord) -> None:
        """End everything of a sandbox that has no owner in this process, except its record. Blocks.

        Raises:
            SandboxError, OSError: not all of it could be ended.
        """

    async def __aenter__(self) -> Self:
        await self.open()
        self._entered = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._entered = False
        await await_shielded(close_all(self._sandboxes.values()))

    async def start(self, spec: SandboxSpec) -> LocalSandbox:
        self.check_entered()
        self.check(spec)
        _check_environment(spec.prepared)
        try:
            sandbox = self.create(spec, self._forget)
        except OSError as error:
            raise SandboxNotReady(f"no sandbox can be made: {error}", stage="create") from error
        self._starting.add(sandbox.id)
        try:
            await sandbox.begin()
        finally:
            self._starting.discard(sandbox.id)
        self._sandboxes[sandbox.id] = sandbox
        if not self._entered:
            await close_after_failure(sandbox)
            self.check_entered()
        return sandbox

    async def found(self, labels: Mapping[str, str] | None = None) -> Sequence[SandboxInfo]:
        return [record.found() for record in await asyncio.to_thread(self.records.all, labels)]

    async def sweep(self, labels: Mapping[str, str] | None = None, *, orphans_only: bool = True) -> list[str]:
        swept, faults = [], []
        for record in await asyncio.to_thread(self.records.all, labels):
            sandbox = self._sandboxes.get(record.id)
            if record.id in self._starting or (orphans_only and (sandbox is not None or not record.is_orphan)):
                continue
            try:
                if sandbox is not None:
                    await sandbox.close()
                elif record.unknown:
                    raise SandboxError(record.unknown)
                else:
                    await run_shielded(self._sweep, record)
                swept.append(record.id)
            except (SandboxError, OSError) as error:
                faults.append(f"{record.id}: {error}")
        if faults:
            raise SandboxError(f"swept {len(swept)} sandboxes, but not all: {'; '.join(faults)}")
        return swept

    def _sweep(self, record: SandboxRecord) -> None:
        self.records.condemn(record)
        self.end(record)
        self.records.remove(record)

    def check_entered(self) -> None:
        """Raise `RuntimeUnavailable` outside of its block."""
        if not self._entered:
            raise RuntimeUnavailable(f"the {self.name} backend starts sandboxes within its `async with` block only")

    def _forget(self, sandbox: LocalSandbox) -> None:
        self._sandboxes.pop(sandbox.id, None)
        if sandbox.not_freed is not None:
            logger.error("%s", sandbox.not_freed)


def _check_environment(prepared: PreparedEnvironment) -> None:
    for path in (*prepared.path, *prepared.mounts, *filter(None, [prepared.python])):
        if not Path(path).exists():
            raise EnvironmentMissing(f"{path} is gone: prepare the environment again")
