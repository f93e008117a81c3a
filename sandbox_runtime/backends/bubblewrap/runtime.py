"""The runtime whose sandboxes are bubblewrap's: namespaces of their own on this machine, none of it to write to."""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from evolverpc_common.shielded import all_of, to_the_end
from sandbox_runtime.api.egress import Closed
from sandbox_runtime.api.gateway_session import Passage
from sandbox_runtime.api.recipe import Prepared, Recipe
from sandbox_runtime.api.sandbox import Ended, Found, NotPrepared, NotReady, Sandbox, SandboxError, Unenforceable
from sandbox_runtime.api.spec import SandboxSpec
from sandbox_runtime.backends.bubblewrap.building import Builder
from sandbox_runtime.backends.bubblewrap.door import Door
from sandbox_runtime.backends.bubblewrap.groups import usable
from sandbox_runtime.backends.bubblewrap.machine import BUILDER, Machine
from sandbox_runtime.backends.bubblewrap.missing import bubblewrap
from sandbox_runtime.backends.bubblewrap.packages import PRELOAD, SERVER, server_mounts
from sandbox_runtime.backends.bubblewrap.resources import free
from sandbox_runtime.backends.bubblewrap.sandbox import BubblewrapSandbox
from sandbox_runtime.backends.closing import close_after_failure, close_all
from sandbox_runtime.backends.records import Record, Records
from sandbox_runtime.backends.sweeping import sweep_records
from sandbox_runtime.environments import Environments

logger = logging.getLogger(__name__)

_WITHOUT = {
    "memory": "memory is bounded for each process alone, and not for the server",
    "pids": "processes are bounded by a limit of the sandbox's user",
    "cpu": "of the cpu only the time of each process is bounded",
}


class BubblewrapRuntime:
    """See `Runtime`. `found` and `sweep` need no `async with` block.

    `environments`: the folder they are kept in, the user's cache by default. `build_way_out`: what may be reached while
    one is built, nothing by default. `warm`: start servers by forking a process that has imported them.
    """

    name = "bubblewrap"

    def __init__(
        self,
        *,
        environments: Path | None = None,
        build_way_out: Passage | None = None,
        records: Records | None = None,
        warm: bool = True,
    ) -> None:
        self._environments = Environments(environments)
        self._build_way_out = build_way_out
        self._records = records or Records("bubblewrap")
        self._warm = warm
        self._machine: Machine | None = None
        self._sandboxes: dict[str, BubblewrapSandbox] = {}

    async def __aenter__(self) -> "BubblewrapRuntime":
        """Make ready. Raises `Unavailable`."""
        rooted = os.geteuid() == 0
        path = await asyncio.to_thread(bubblewrap, BUILDER if rooted else None)
        groups = await asyncio.to_thread(usable)
        self._machine = Machine(path, Door(PRELOAD if self._warm else None), self._records, groups, rooted, self._warm)
        logger.info("control groups (version %d) bound %s", groups.version, ", ".join(groups.parents) or "nothing")
        for name in groups.lacking:
            logger.warning("no control group can be made for %s: %s", name, _WITHOUT[name])
        return self

    async def __aexit__(self, *_: object) -> None:
        """End every sandbox that was started and not closed."""
        await all_of(self._leave())

    async def _leave(self) -> None:
        try:
            await close_all(self._sandboxes.values())
        finally:
            await self._here.door.leave()
            self._machine = None

    @property
    def _here(self) -> Machine:
        if self._machine is None:
            raise RuntimeError("use the runtime in an `async with` block")
        return self._machine

    async def prepare(self, recipe: Recipe, *, told: Callable[[str], None], afresh: bool = False) -> Prepared:
        """Have the recipe's environment ready on this machine. Raises `NotPrepared`, `Unavailable`."""
        builder = Builder(self._here, self._build_way_out)
        built = await self._environments.ready(recipe, run=builder.run, told=told, afresh=afresh)
        return Prepared(
            recipe=recipe,
            server=(*SERVER, "--jail"),
            python=built.python,
            path=built.path,
            mounts=tuple(dict.fromkeys((*server_mounts(), *built.mounts))),
            env=built.env,
        )

    async def start(self, spec: SandboxSpec) -> Sandbox:
        """Start one that is ready; see `Runtime.start`."""
        _check(spec)
        try:
            sandbox = BubblewrapSandbox(await self._machine_up(), spec)
        except OSError as error:
            raise NotReady(f"no sandbox can be made: {error}", stage="create") from error
        self._sandboxes[sandbox.id] = sandbox
        ended = asyncio.ensure_future(sandbox.wait())
        ended.add_done_callback(partial(self._forget, sandbox))
        try:
            await sandbox.bring_up()
        except (OSError, TimeoutError, SandboxError) as error:
            await close_after_failure(sandbox)
            if isinstance(error, NotReady):
                raise
            raise sandbox.not_ready(str(error) or f"it took longer than {spec.ready_s:g} s") from error
        except BaseException:
            await close_after_failure(sandbox)
            raise
        return sandbox

    async def _machine_up(self) -> Machine:
        """With a doorman that runs."""
        machine = self._here
        if machine.door.lost.done():
            logger.warning("the process that kept the sandboxes has ended: %s", machine.door.lost.result())
            self._machine = replace(machine, door=Door(PRELOAD if self._warm else None))
            await machine.door.leave()
        return self._here

    def _forget(self, sandbox: BubblewrapSandbox, ended: "asyncio.Future[Ended]") -> None:
        del self._sandboxes[sandbox.id]
        error = None if ended.cancelled() else ended.exception() or sandbox.not_freed
        if error is not None:
            logger.error("not all of sandbox %s could be freed, `sweep` tries again: %s", sandbox.id, error)

    async def found(self, labels: Mapping[str, str] | None = None) -> Sequence[Found]:
        """Those of this user on this machine."""
        return [record.found() for record in await asyncio.to_thread(self._records.all, labels)]

    async def sweep(self, labels: Mapping[str, str] | None = None, *, orphans_only: bool = True) -> list[str]:
        """End those that nobody owns any more, or all of them; see `Runtime.sweep`."""

        async def end(record: Record) -> None:
            await to_the_end(self._sweep, record)

        return await sweep_records(self._records, labels, self._sandboxes, end, orphans_only=orphans_only)

    def _sweep(self, record: Record) -> None:
        self._records.condemn(record)
        free(record)
        self._records.remove(record)


def _check(spec: SandboxSpec) -> None:
    if not isinstance(spec.egress, Closed) and spec.way_out is None:
        raise Unenforceable(
            f"a bubblewrap sandbox has no network: {type(spec.egress).__name__} needs a way out, which enforces it"
        )
    missing = [path for path in spec.prepared.mounts if not Path(path).exists()]
    if missing:
        raise NotPrepared(f"the environment is not ready: there is no {', '.join(missing)}")
