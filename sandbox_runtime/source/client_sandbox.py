"""One client's program in a sandbox: start it from a commit, use it, and end it, any number of times."""

import asyncio
import dataclasses
import hashlib
import io
import itertools
import logging
import posixpath
import tarfile
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any

from evolverpc_common.python_package_managers import SERVER_SETTINGS
from evolverpc_common.shielded import await_shielded
from sandbox_runtime.api.sandbox import (
    CommandResult,
    SandboxError,
    SandboxExit,
    SandboxGone,
    ServerEndpoint,
)
from sandbox_runtime.api.spec import (
    PYTHON_VARIABLE,
    Command,
    GatewaySession,
    PreparedEnvironment,
    Recipe,
    SandboxOptions,
    SandboxSpec,
)
from sandbox_runtime.runtime import Runtime, Sandbox
from sandbox_runtime.source.recipes import program_needs
from sandbox_runtime.source.source import Checkout, Source
from sandbox_runtime.source.workspace import PrebuiltCommand, Workspace, bash, link_command, restore_command


@dataclass(frozen=True, kw_only=True)
class ClientSettings(SandboxOptions):
    """Settings of a client's sandboxes; see `SandboxOptions`.

    `server_args`: for `evolverpc serve`. `main`: the command to start instead, for a program that serves itself; it
    listens at `GEPA_LISTEN`. `python`, `node`: versions that replace those of the manifests. `packages`: more Python
    packages. `commands`: prebuilt ones by name.
    """

    server_args: tuple[str, ...] = ()
    main: tuple[str, ...] | None = None
    python: str | None = None
    node: str | None = None
    packages: tuple[str, ...] = ()
    commands: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    def recipe(self, needs: Recipe) -> Recipe:
        """Return the recipe for a program with these needs."""
        return dataclasses.replace(
            needs,
            python=self.python or needs.python,
            node=self.node or needs.node,
            packages=(*needs.packages, *self.packages),
        )


logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _StartState:
    """What a start needs. `changes`: to the commit, as from `Workspace.changes`."""

    checkout: Checkout
    prepared: PreparedEnvironment
    changes: bytes | None = None


@dataclass(eq=False)
class ClientSandbox:
    """A client's sandbox. Methods may be called at any time; those that start or end it wait for each other.

    `name`: the name that `open_session` gets, which opens a session at the gateway for each start. `on_progress` is
    called with the progress of long steps, which is logged by default. Use it in an `async with` block, or close it.
    """

    runtime: Runtime
    source: Source
    settings: ClientSettings = field(default_factory=ClientSettings)
    _: KW_ONLY
    name: str = "client"
    open_session: Callable[[str], GatewaySession] | None = None
    on_progress: Callable[[str], None] = field(default=partial(logger.info, "%s"))

    def __post_init__(self) -> None:
        self._commands = {name: PrebuiltCommand(name, script) for name, script in self.settings.commands.items()}
        self._made: _StartState | None = None
        self._sandbox: Sandbox | None = None
        self._session: GatewaySession | None = None
        self._up = False
        self._closed = False
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> "ClientSandbox":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def id(self) -> str:
        """The runtime's name for the one that was started last. Raises `SandboxGone` if none was."""
        return self._last().id

    async def prepare(self) -> PreparedEnvironment:
        """Prepare the commit and the environment, so that `start` need not wait for them. Raises `SandboxError`."""
        async with self._turn:
            return (await self._prepared()).prepared

    async def start(self) -> ServerEndpoint:
        """Start it and wait until its server is ready; do nothing if it runs already.

        Raises:
            SandboxError: it cannot be started; nothing of it is left. `SandboxGone`: this was closed.
        """
        async with self._turn:
            return await self._started()

    async def endpoint(self) -> ServerEndpoint:
        """Return the address of its server; call it again if that refuses. Raises `SandboxGone`."""
        return await self._running().endpoint()

    async def stop(self) -> None:
        """End it. It can be started again from the commit; prebuilt commands are kept, its files are not."""
        async with self._turn:
            await self._stopped()

    async def close(self) -> None:
        """End it for good. Safe to call twice; a cancellation waits until it is done."""
        self._closed = True
        await await_shielded(self.stop())

    async def reinstall_deps(self) -> ServerEndpoint:
        """Rebuild its environment from the manifests in its workspace, and start its server again.

        This is a new sandbox, now and from now on: changes of the program's files are applied to it, but not ignored
        files and those outside of `program/`. The old one answers until the environment is built, and stays if that
        fails; on nodes this waits until there is room for both.

        Raises:
            SandboxError: the environment cannot be built, or the changes are too large. `SandboxGone`: it does not run.
        """
        async with self._turn:
            sandbox, made = self._running(), await self._prepared()
            workspace = Workspace(sandbox)
            checkout = made.checkout
            needs = await program_needs(workspace, checkout.folder)
            changes = await workspace.changes(checkout.commit)
            made_again = (checkout.unpack_command(), restore_command(changes))
            changed = f"{checkout.needs.origin} {checkout.commit} {hashlib.sha256(changes).hexdigest()}"
            recipe = dataclasses.replace(self.settings.recipe(needs), checkout=made_again, origin=changed)
            prepared = await self.runtime.prepare(recipe, on_progress=self.on_progress, rebuild=True)
            await self._stopped()
            self._made = _StartState(checkout, prepared, changes)
            return await self._started()

    async def exec_bash(
        self, script: str, timeout_s: float = 60.0, env: Mapping[str, str] | None = None
    ) -> CommandResult:
        """Run a bash script in the program's folder, with its environment and the prebuilt commands on `PATH`.

        `env`: variables for this script. Raises `SandboxGone` if it does not run.
        """
        sandbox, made = self._running(), self._made
        assert made is not None  # noqa: S101  nothing is up without
        return await sandbox.exec(bash(script, made.checkout.cwd, timeout_s, env))

    async def config(self) -> dict[str, Any]:
        """Return the program's `gepa.toml`, which is untrusted; empty if there is none.

        Raises:
            SandboxError: it cannot be read. `SandboxGone`: it does not run.
        """
        file = posixpath.join(self._top(), SERVER_SETTINGS)
        content = (await Workspace(self._running()).read([file])).get(file, b"")
        try:
            return tomllib.loads(content.decode())
        except ValueError as error:
            raise SandboxError(f"gepa.toml cannot be read: {error}") from None

    async def artifacts(self) -> list[bytes]:
        """Return what the program has saved, as tars, which are untrusted and cut off at `ARTIFACTS_BYTES`.

        The folder that `artifacts` in `gepa.toml` (or in `server_args`) names, and the file that
        `saved_program_json_path` names, as `program.json`; nothing without these.

        Raises:
            SandboxError: they cannot be read, or are not below the program's folder. `SandboxGone`: it does not run.
        """
        workspace, config = Workspace(self._running()), await self.config()
        found = []
        if (folder := self._path("artifacts", config)) is not None:
            found.append(await workspace.packed(folder))
        if (file := self._path("saved_program_json_path", config)) is not None:
            content = (await workspace.read([file])).get(file)
            found += [] if content is None else [_tar("program.json", content)]
        return found

    def _path(self, setting: str, config: Mapping[str, Any]) -> str | None:
        """Return the path that a setting of the server names, from the repository's top; None if it is not given."""
        words = [flag for word in self.settings.server_args for flag in word.split("=", 1)]
        given = [value for flag, value in itertools.pairwise(words) if flag == f"--{setting.replace('_', '-')}"]
        named = given[-1] if given else config.get(setting)
        if named is None:
            return None
        path = posixpath.normpath(posixpath.join(self._top(), str(config.get("root", "")), str(named)))
        if path.startswith(("/", "../")) or path in {"..", ".", self._top()}:
            raise SandboxError(f"{setting}: {named!r} is not below the program's folder")
        return path

    def _top(self) -> str:
        assert self._made is not None  # noqa: S101  nothing is up without
        return self._made.checkout.folder

    async def add_command(self, name: str, script: bytes) -> None:
        """Put an executable on the `PATH` of all later commands: of `exec_bash`, the server and its agents.

        Raises:
            ValueError: the name is invalid.
            SandboxError: it runs and cannot accept the command.
        """
        command = PrebuiltCommand(name, script)
        async with self._turn:
            if self._up:
                done = await self._running().exec(command.install_command())
                if done.status != 0:
                    stderr = done.stderr[-1000:].decode("utf-8", "replace")
                    raise SandboxError(f"command {name!r} cannot be added: {stderr or 'it took too long'}")
            self._commands[name] = command

    async def wait(self) -> SandboxExit:
        """Wait until the one that was started last has ended. Raises `SandboxGone` if none was."""
        return await self._last().wait()

    async def logs(self) -> str:
        """Return the end of the output of the one that was started last; nothing if none was."""
        return "" if self._sandbox is None else await self._sandbox.logs()

    def _last(self) -> Sandbox:
        if self._sandbox is None:
            raise SandboxGone(f"{self.name}: no sandbox was started")
        return self._sandbox

    def _running(self) -> Sandbox:
        if not self._up:
            raise SandboxGone(f"{self.name}: its sandbox is not up")
        return self._last()

    async def _prepared(self) -> _StartState:
        if self._made is None:
            checkout = await self.source.ready(on_progress=self.on_progress)
            recipe = self.settings.recipe(checkout.needs)
            prepared = await self.runtime.prepare(recipe, on_progress=self.on_progress)
            self._made = _StartState(checkout, prepared)
        return self._made

    async def _started(self) -> ServerEndpoint:
        if self._closed:
            raise SandboxGone(f"{self.name} was closed")
        if self._up:
            try:
                return await self._running().endpoint()
            except SandboxGone:
                await self._cleared()
        made = await self._prepared()
        self._session = None if self.open_session is None else self.open_session(self.name)
        try:
            self._sandbox = await self.runtime.start(self._spec(made))
            self._up = True
            return await self._sandbox.endpoint()
        except BaseException:
            await await_shielded(self._cleared())
            raise

    async def _cleared(self) -> None:
        """Stop it, and log an error instead of raising it."""
        try:
            await self._stopped()
        except SandboxError as error:
            logger.warning("%s: %s", self.name, error)

    async def _stopped(self) -> None:
        session, self._session = self._session, None
        up, self._up = self._up, False
        try:
            if up:
                await self._last().close()
        finally:
            if session is not None:
                await session.close()

    def _spec(self, made: _StartState) -> SandboxSpec:
        settings, prepared = self.settings, made.prepared
        python = {} if prepared.python is None else {PYTHON_VARIABLE: prepared.python}
        server = settings.main or (*prepared.server, *settings.server_args)
        options = {option.name: getattr(settings, option.name) for option in dataclasses.fields(SandboxOptions)}
        return SandboxSpec(
            main=Command(server, cwd=made.checkout.cwd, env=python),
            prepared=prepared,
            setup=(*self._setup(made), *(command.install_command() for command in self._commands.values())),
            gateway_session=self._session,
            **options,
        )

    def _setup(self, made: _StartState) -> tuple[Command, ...]:
        commands = [made.checkout.unpack_command()]
        if made.changes is not None:
            commands.append(restore_command(made.changes))
        install = made.prepared.recipe.node_install
        if install is not None:
            installed = made.prepared.env["NODE_PATH"].removesuffix(f"/{install.modules[-1]}")
            commands.append(link_command(made.prepared.server[:2], installed))
        return tuple(commands)


def _tar(name: str, content: bytes) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return written.getvalue()
