"""One client's program in one sandbox: started from a commit, worked in, and ended, as often as one likes."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from evolverpc_common.shielded import all_of
from sandbox_runtime.api.endpoint import Endpoint
from sandbox_runtime.api.gateway_session import Passage
from sandbox_runtime.api.recipe import Prepared
from sandbox_runtime.api.sandbox import Ended, Executed, Gone, Runtime, Sandbox, SandboxError
from sandbox_runtime.api.spec import Command, SandboxSpec
from sandbox_runtime.source.changes import Workspace, restoring
from sandbox_runtime.source.commands import Prebuilt, bash, linking
from sandbox_runtime.source.recipes import Needs, needs_of
from sandbox_runtime.source.settings import ClientSettings
from sandbox_runtime.source.source import PROGRAM, Checkout, Source

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Made:
    """What a start has to have ready. `changes`: to the commit, as `Workspace.changes` gives them."""

    checkout: Checkout
    needs: Needs
    prepared: Prepared
    changes: bytes | None = None


def _say(words: str) -> None:
    logger.info("%s", words)


class ClientSandbox:
    """A client's sandbox. Methods may be called at any time; those that start or end it wait for each other.

    `name`: what `way_out`, which gives it its passage through a gateway each time it is started, knows it by. `told`
    hears what takes long. Use it in an `async with` block, or close it.
    """

    def __init__(
        self,
        runtime: Runtime,
        source: Source,
        settings: ClientSettings | None = None,
        *,
        name: str = "client",
        way_out: Callable[[str], Passage] | None = None,
        told: Callable[[str], None] = _say,
    ) -> None:
        self._runtime = runtime
        self._source = source
        self._settings = settings or ClientSettings()
        self._name = name
        self._way_out = way_out
        self._told = told
        self._commands = {name: Prebuilt(name, script) for name, script in self._settings.commands.items()}
        self._made: _Made | None = None
        self._sandbox: Sandbox | None = None
        self._passage: Passage | None = None
        self._up = False
        self._closed = False
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> "ClientSandbox":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def id(self) -> str | None:
        """What the runtime calls the one that was started last."""
        return None if self._sandbox is None else self._sandbox.id

    async def prepare(self) -> Prepared:
        """Have the commit and the environment ready, so that `start` has nothing to wait for. Raises `SandboxError`."""
        async with self._turn:
            return (await self._prepared()).prepared

    async def start(self) -> Endpoint:
        """Start it and wait until its server is ready; where it is up already, that is all.

        Raises:
            SandboxError: it cannot be; nothing of it is left. `Gone`: this was closed.
        """
        async with self._turn:
            return await self._started()

    async def endpoint(self) -> Endpoint:
        """Where its server answers; to be asked again when that refuses. Raises `Gone`."""
        return await self._running().endpoint()

    async def stop(self) -> None:
        """End it. It can be started again, from the commit; prebuilt commands are kept, nothing else of its files."""
        async with self._turn:
            await self._stopped()

    async def close(self) -> None:
        """End it for good. Safe to call twice; a cancellation waits until it is done."""
        self._closed = True
        await all_of(self.stop())

    async def reinstall_deps(self) -> Endpoint:
        """Make its environment afresh from the manifests as they are in its workspace now, and start its server again.

        That is a new sandbox; what was changed in the program's files goes with it, ignored files and what is outside
        of `program/` do not. It starts like that from now on. While the environment is made the old one answers; where
        it cannot be made, that stays as it was.

        Raises:
            SandboxError: the environment cannot be made, or what was changed is too much. `Gone`: it is not up.
        """
        async with self._turn:
            sandbox, made = self._running(), await self._prepared()
            workspace = Workspace(sandbox)
            checkout = made.checkout
            needs = await needs_of(workspace.read, checkout.folder, self._source.languages)
            changes = await workspace.changes(checkout.commit)
            prepared = await self._runtime.prepare(self._settings.recipe(needs), told=self._told, afresh=True)
            await self._stopped()
            self._made = _Made(checkout, needs, prepared, changes)
            return await self._started()

    async def exec_bash(self, script: str, timeout_s: float = 60.0, env: Mapping[str, str] | None = None) -> Executed:
        """Run a script of bash in the program's folder, with its environment and the prebuilt commands on `PATH`.

        `env`: variables for it alone. Raises `Gone` where it is not up.
        """
        sandbox, made = self._running(), self._made
        assert made is not None  # noqa: S101  nothing is up without
        return await sandbox.exec(bash(script, made.checkout.cwd, timeout_s, env))

    async def add_command(self, name: str, script: bytes) -> None:
        """Have an executable on `PATH` of all that runs there from now on: of `exec_bash`, the server and its agents.

        Raises:
            ValueError: that is no name for a command.
            SandboxError: it is up and cannot take it.
        """
        command = Prebuilt(name, script)
        async with self._turn:
            if self._up:
                done = await self._running().exec(command.adding())
                if done.status != 0:
                    said = done.stderr[-1000:].decode("utf-8", "replace")
                    raise SandboxError(f"command {name!r} cannot be added: {said or 'it took too long'}")
            self._commands[name] = command

    async def wait(self) -> Ended:
        """Until the one that was started last has ended, however that comes. Raises `Gone` where none was."""
        return await self._last().wait()

    async def logs(self) -> str:
        """The end of what the one that was started last wrote; nothing where none was."""
        return "" if self._sandbox is None else await self._sandbox.logs()

    def _last(self) -> Sandbox:
        if self._sandbox is None:
            raise Gone(f"{self._name}: no sandbox was started")
        return self._sandbox

    def _running(self) -> Sandbox:
        if not self._up:
            raise Gone(f"{self._name}: its sandbox is not up")
        return self._last()

    async def _prepared(self) -> _Made:
        if self._made is None:
            checkout = await self._source.ready(told=self._told)
            recipe = self._settings.recipe(checkout.needs)
            prepared = await self._runtime.prepare(recipe, told=self._told)
            self._made = _Made(checkout, checkout.needs, prepared)
        return self._made

    async def _started(self) -> Endpoint:
        if self._closed:
            raise Gone(f"{self._name} was closed")
        if self._up:
            try:
                return await self._running().endpoint()
            except Gone:
                await self._cleared()
        made = await self._prepared()
        self._passage = self._way_out(self._name) if self._way_out is not None else None
        try:
            self._sandbox = await self._runtime.start(self._spec(made))
            self._up = True
            return await self._sandbox.endpoint()
        except BaseException:
            await all_of(self._cleared())
            raise

    async def _cleared(self) -> None:
        """The same as `_stopped` where something else is told, or done, than that not all could be freed."""
        try:
            await self._stopped()
        except SandboxError as error:
            logger.warning("%s: %s", self._name, error)

    async def _stopped(self) -> None:
        passage, self._passage = self._passage, None
        up, self._up = self._up, False
        try:
            if up:
                await self._last().close()
        finally:
            if passage is not None:
                await passage.close()

    def _spec(self, made: _Made) -> SandboxSpec:
        settings, prepared = self._settings, made.prepared
        python = ("--python", prepared.python) if prepared.python is not None else ()
        return SandboxSpec(
            main=Command(settings.main or (*prepared.server, *python, *settings.server_args), cwd=made.checkout.cwd),
            prepared=prepared,
            setup=(*self._setup(made), *(command.adding() for command in self._commands.values())),
            egress=settings.egress,
            way_out=self._passage,
            env=settings.env,
            secrets=settings.secrets,
            labels=settings.labels,
            cpu=settings.cpu,
            memory_mb=settings.memory_mb,
            workspace_mb=settings.workspace_mb,
            processes=settings.processes,
            lifetime_s=settings.lifetime_s,
            ready_s=settings.ready_s,
        )

    def _setup(self, made: _Made) -> tuple[Command, ...]:
        commands = [*made.checkout.setup()]
        if made.changes is not None:
            commands.append(restoring(made.changes))
        modules = made.prepared.env.get("NODE_PATH")
        if modules is not None and made.needs.node_folder is not None:
            commands.append(linking(modules, f"{PROGRAM}/{made.needs.node_folder}", PROGRAM))
        return tuple(commands)
