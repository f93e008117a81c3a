"""Start, find and end sandboxes of any backend."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Self

from evolverpc_common.output_tail import OutputTail
from evolverpc_common.shielded import await_shielded
from sandbox_runtime.api.sandbox import LOG_BYTES, RuntimeUnavailable, SandboxError, SandboxInfo
from sandbox_runtime.api.spec import PreparedEnvironment, Recipe, SandboxSpec
from sandbox_runtime.runtime.sandbox import OWN_MEANING, Sandbox, StartedSandbox, end_after_failure, not_ready

_AT_ONCE = 20
"""How many sandboxes are ended at the same time."""


class Runtime(ABC):
    """Starts sandboxes of one kind. Use it in an `async with` block, which ends those that were not closed.

    A backend implements `open`, `prepare`, `begin`, `stop` and `found`.
    """

    name: ClassVar[str]
    """`process`, `bubblewrap`, `docker` or `modal`."""

    def __init__(self) -> None:
        self._sandboxes: dict[str, Sandbox] = {}
        self._entered = False

    @abstractmethod
    async def open(self) -> None:
        """Examine whether it can be used, before `prepare` and `begin`. Raises `RuntimeUnavailable`."""

    @abstractmethod
    async def prepare(
        self, recipe: Recipe, *, on_progress: Callable[[str], None], rebuild: bool = False
    ) -> PreparedEnvironment:
        """Make the recipe's environment ready, at most once; `rebuild` makes it again in any case.

        `on_progress` is called with the progress of long steps. Raises `SandboxError`.
        """

    @abstractmethod
    async def begin(self, spec: SandboxSpec, log: OutputTail) -> StartedSandbox:
        """Start a sandbox in which nothing runs yet. Nothing of it is left on any failure or cancellation.

        `log`: gets what its server prints, and what is printed while it is made.

        Raises:
            EgressNotEnforced, EnvironmentMissing, RuntimeThrottled, RuntimeUnavailable: see each.
            SandboxError, OSError: it cannot be made.
            ValueError: a label is not as `SandboxSpec.labels` requires.
        """

    @abstractmethod
    async def stop(self, id_: str) -> None:
        """End everything of a sandbox and free it, also one of another process, or one that has ended.

        A cancellation waits until it is done.

        Raises:
            SandboxError, OSError: something of it is left; call it again to retry.
        """

    @abstractmethod
    async def found(self, labels: Mapping[str, str] | None = None) -> Sequence[SandboxInfo]:
        """Return every sandbox of this kind that has these labels, of any process."""

    async def __aenter__(self) -> Self:
        """Open it. Raises `RuntimeUnavailable`."""
        await self.open()
        self._entered = True
        return self

    async def __aexit__(self, *_: object) -> None:
        """End every sandbox that was started and not closed.

        Raises:
            SandboxError: after all were tried: some could not be freed; how many, and the first error.
        """
        self._entered = False
        count = len(self._sandboxes)
        if faults := await await_shielded(self._end(list(self._sandboxes))):
            raise SandboxError(f"{len(faults)} of {count} sandboxes could not be freed: {faults[0]}")

    async def start(self, spec: SandboxSpec) -> Sandbox:
        """Start a sandbox and wait until it is ready. Nothing of it is left on any failure or cancellation.

        Raises:
            EgressNotEnforced, EnvironmentMissing, SandboxNotReady, RuntimeThrottled, RuntimeUnavailable: see each.
            ValueError: a label is not as `SandboxSpec.labels` requires.
        """
        self._check_entered()
        log = OutputTail(LOG_BYTES)
        try:
            async with asyncio.timeout(spec.ready_s):
                started = await self.begin(spec, log)
        except OWN_MEANING:
            raise
        except (SandboxError, OSError) as error:
            await asyncio.sleep(0)  # the last output may not be read yet
            why = str(error) or f"it took longer than {spec.ready_s:g} s"
            raise not_ready(f"no sandbox can be made: {why}", "create", log) from error
        sandbox = Sandbox(self.stop, started, spec, log, self._forget)
        self._sandboxes[sandbox.id] = sandbox
        try:
            self._check_entered()  # the block may have been left meanwhile
            await sandbox.bring_up()
        except BaseException:
            await end_after_failure(sandbox.close())
            raise
        return sandbox

    async def sweep(self, labels: Mapping[str, str] | None = None, *, orphans_only: bool = True) -> list[str]:
        """End those among `found` whose owner has ended, or all of them; return their ids.

        Raises:
            SandboxError: after all were tried: some could not be ended; which, and why.
        """
        ids = [each.id for each in await self.found(labels) if not orphans_only or self._is_orphan(each)]
        if faults := await self._end(ids):
            raise SandboxError(f"swept {len(ids) - len(faults)} sandboxes, but not all: {'; '.join(faults)}")
        return ids

    async def _end(self, ids: Sequence[str]) -> list[str]:
        """End sandboxes in parallel, each completely; return which could not be ended, and why."""
        places_left = asyncio.Semaphore(_AT_ONCE)

        async def end(id_: str) -> str | None:
            own = self._sandboxes.get(id_)
            async with places_left:
                try:
                    await (self.stop(id_) if own is None else own.close())
                except (SandboxError, OSError) as error:
                    return f"{id_}: {error}"
            return None

        return list(filter(None, await asyncio.gather(*(end(id_) for id_ in ids))))

    def _is_orphan(self, found: SandboxInfo) -> bool:
        return found.orphan and found.id not in self._sandboxes

    def _forget(self, sandbox: Sandbox) -> None:
        self._sandboxes.pop(sandbox.id, None)

    def _check_entered(self) -> None:
        if not self._entered:
            raise RuntimeUnavailable(f"the {self.name} backend starts sandboxes within its `async with` block only")
