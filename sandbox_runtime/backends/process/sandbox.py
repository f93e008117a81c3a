"""One sandbox of plain processes: set up, started, used, and ended completely."""

import asyncio
import logging
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from evolverpc_common.files import remove_tree
from evolverpc_common.output_tail import OutputTail
from evolverpc_common.process_identity import started_at
from evolverpc_common.shielded import await_shielded
from sandbox_runtime.api.sandbox import (
    EXEC_BYTES,
    LOG_BYTES,
    CommandResult,
    ProcessEndpoint,
    SandboxError,
    SandboxExit,
    SandboxGone,
    SandboxNotReady,
)
from sandbox_runtime.api.spec import MEMORY_VARIABLE, Command, SandboxSpec
from sandbox_runtime.backends.process.commands import ProcessLimits, RunningCommand
from sandbox_runtime.backends.records import SandboxRecord, SandboxRecords
from sandbox_runtime.backends.shared_steps import failure_of, healthy_before, not_ready

STANDARD_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_BACKLOG = 1024

logger = logging.getLogger(__name__)


class ProcessSandbox:
    """See `Sandbox`. `workspace`: a new folder of its own. `ended`: called when nothing of it is left."""

    def __init__(
        self,
        spec: SandboxSpec,
        record: SandboxRecord,
        records: SandboxRecords,
        workspace: Path,
        ended: Callable[["ProcessSandbox"], None],
    ) -> None:
        self._spec = spec
        self._record = record
        self._records = records
        self._workspace = workspace
        self._on_ended = ended
        self._limits = ProcessLimits(memory=spec.limits.memory_mb * 2**20, file=spec.limits.workspace_mb * 2**20)
        self._log = OutputTail(LOG_BYTES)
        self._token = secrets.token_urlsafe(32)
        self._variables: dict[str, str] = {}
        self._commands: set[asyncio.Future[None]] = set()
        self._counted = 0
        self._main: RunningCommand | None = None
        self._life: asyncio.Task[SandboxExit] | None = None
        self._closing = asyncio.Event()
        self._over = asyncio.Event()
        self._not_freed: SandboxError | None = None
        self._began = time.monotonic()

    @property
    def id(self) -> str:
        return self._record.id

    async def begin(self) -> None:
        """Set it up and start its server; call it once. Nothing of it is left on failure."""
        try:
            await self._set_up()
            await self._start_main()
        except BaseException:
            self._over.set()
            try:
                await await_shielded(self._free())
            except SandboxError as error:
                logger.warning("%s", error)
            raise
        self._life = asyncio.create_task(self._live())

    async def endpoint(self) -> ProcessEndpoint:
        self._check_up()
        assert self._main is not None, "it is up"  # noqa: S101
        return ProcessEndpoint(self._url, self._token, pid=self._main.command)

    async def exec(self, command: Command) -> CommandResult:
        """See `Sandbox`. Raises `OSError` if the file of its input cannot be read."""
        self._check_up()
        stdout, stderr = OutputTail(EXEC_BYTES), OutputTail(EXEC_BYTES)
        started = time.monotonic()
        status = await self._run(command, stdout, stderr)
        self._check_up()
        return CommandResult(status, stdout.bytes(), stderr.bytes(), time.monotonic() - started)

    async def logs(self) -> str:
        return self._log.text()

    async def wait(self) -> SandboxExit:
        assert self._life is not None, "it is up"  # noqa: S101
        return await asyncio.shield(self._life)

    async def close(self) -> None:
        self._closing.set()
        await await_shielded(self.wait())
        if self._not_freed is not None:
            raise self._not_freed

    def _check_up(self) -> None:
        if self._over.is_set():
            raise SandboxGone(f"sandbox {self.id} has ended")

    async def _set_up(self) -> None:
        try:
            gateway_session = await self._gateway_variables()
        except OSError as error:
            raise self._not_ready("create", f"its gateway session cannot be opened: {error}") from error
        self._variables = {
            "PATH": ":".join((str(self._workspace / "bin"), *self._spec.prepared.path, STANDARD_PATH)),
            "HOME": str(self._workspace / "home"),
            "TMPDIR": str(self._workspace / "tmp"),
            "LANG": "C.UTF-8",
            **self._spec.prepared.env,
            **gateway_session,
            **self._spec.env,
            **self._spec.secrets,
        }
        for command in self._spec.setup:
            left = self._began + self._spec.ready_s - time.monotonic()
            try:
                async with asyncio.timeout(left):
                    status = await self._run(command, self._log)
            except TimeoutError:
                raise self._not_ready(
                    "ready", f"{command.argv[0]!r} still ran after {self._spec.ready_s:g} s"
                ) from None
            except OSError as error:
                raise self._not_ready("setup", f"{command.argv[0]!r} cannot be run: {error}") from error
            if status != 0:
                raise self._not_ready("setup", failure_of(command, status))

    async def _gateway_variables(self) -> Mapping[str, str]:
        session = self._spec.gateway_session
        if session is None:
            return {}
        if session.models_url is not None and session.tunnel_url is not None:
            return session.env(session.models_url, session.tunnel_url)
        models = _on_loopback()
        try:
            tunnel = _on_loopback()
        except OSError:
            models.close()
            raise
        urls = [f"http://127.0.0.1:{listening.getsockname()[1]}" for listening in (models, tunnel)]
        await session.serve(models, tunnel)
        return session.env(*urls)

    async def _start_main(self) -> None:
        path = self._record.sockets / "server"
        self._url = f"http+unix://{quote(str(path), safe='')}"
        listening = socket.socket(socket.AF_UNIX)
        with listening:  # ours is closed at once: no client waits in its backlog when the server has ended
            try:
                listening.bind(str(path))
                listening.listen(_BACKLOG)
                self._main = main = RunningCommand.start(
                    self._spec.main.argv,
                    mark=self.id,
                    folder=self._workspace / self._spec.main.cwd,
                    env={
                        **self._variables,
                        **self._spec.main.env,
                        "GEPA_LISTEN": "fd:3",
                        "GEPA_TOKEN": self._token,
                        MEMORY_VARIABLE: str(self._spec.limits.memory_mb),
                    },
                    limits=replace(self._limits, memory=-1),
                    stdout=self._log,
                    listening=listening.fileno(),
                )
                resources = {**self._record.resources, "main": [main.pid, started_at(main.pid)]}
                self._record = self._records.update(self._record, resources)
            except OSError as error:
                raise self._not_ready("main", f"the server cannot be started: {error}") from error
        await self._until_ready(main)

    async def _until_ready(self, main: RunningCommand) -> None:
        left = max(self._began + self._spec.ready_s - time.monotonic(), 0.0)
        endpoint = ProcessEndpoint(self._url, self._token, pid=main.pid)
        try:
            if not await healthy_before(main.exited, endpoint, left):
                await await_shielded(main.end())
                raise self._not_ready("main", f"the server ended with status {main.status} before it was ready")
        except TimeoutError as error:
            raise self._not_ready("ready", f"the server was {error}") from None

    async def _live(self) -> SandboxExit:
        main = self._main
        assert main is not None, "it is up"  # noqa: S101
        try:
            await _either(main.exited, self._closing, self._began + self._spec.limits.lifetime_s - time.monotonic())
        finally:
            closed, exited = self._closing.is_set(), main.exited.done()
            swept = self._records.is_condemned(self._record)
            self._over.set()
            try:
                await await_shielded(self._free())
            except SandboxError as error:
                self._not_freed = error
            self._on_ended(self)
        if closed:
            return SandboxExit("terminated", detail="closed")
        if exited:
            return SandboxExit("terminated", detail="swept") if swept else SandboxExit("exited", main.status)
        return SandboxExit("timed_out", detail=f"its lifetime of {self._spec.limits.lifetime_s:g} s was over")

    async def _run(self, command: Command, stdout: OutputTail, stderr: OutputTail | None = None) -> int | None:
        """Run a command and end everything that it started; return its status, None if it timed out."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._commands.add(ended)
        try:
            self._counted += 1
            running = RunningCommand.start(
                command.argv,
                mark=f"{self.id}.{self._counted}",
                folder=self._workspace / command.cwd,
                env={**self._variables, **command.env},
                limits=self._limits,
                stdout=stdout,
                stderr=stderr,
                stdin=command.stdin,
            )
            try:
                await _either(running.exited, self._over, command.timeout_s)
                in_time = running.exited.done()
            finally:
                await await_shielded(running.end())
            return running.status if in_time else None
        finally:
            self._commands.discard(ended)
            ended.set_result(None)

    def _not_ready(self, stage: str, what: str) -> SandboxNotReady:
        return not_ready(f"{stage}: {what}", stage, self._log)

    async def _free(self) -> None:
        if self._commands:
            await asyncio.wait(list(self._commands))
        try:
            left = await self._main.end() if self._main is not None else set()
            if left:
                raise SandboxError(f"sandbox {self.id}: processes {sorted(left)} cannot be ended; sweep it later")
            await asyncio.to_thread(remove_tree, self._workspace)
            await asyncio.to_thread(self._records.remove, self._record)
        except OSError as error:
            raise SandboxError(f"sandbox {self.id}: {error}; sweep it later") from error


async def _either(exited: "asyncio.Future[None]", event: asyncio.Event, within_s: float) -> None:
    """Wait until one of them happens, or the time is over."""
    happened = asyncio.ensure_future(event.wait())
    waited: set[asyncio.Future[Any]] = {exited, happened}
    try:
        await asyncio.wait(waited, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        happened.cancel()


def _on_loopback() -> socket.socket:
    listening = socket.socket()
    try:
        listening.bind(("127.0.0.1", 0))
        listening.listen(_BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening
