"""One sandbox of this machine, above what its backend does: its setup, the start of its server, its use and its end."""

import asyncio
import logging
import secrets
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from evolverpc_common.output_tail import OutputTail
from evolverpc_common.shielded import await_shielded
from sandbox_runtime.api.egress import MODELS_PORT, TUNNEL_PORT
from sandbox_runtime.api.sandbox import (
    EXEC_BYTES,
    CommandResult,
    SandboxError,
    SandboxExit,
    SandboxGone,
    SandboxNotReady,
    ServerEndpoint,
)
from sandbox_runtime.api.spec import Command, SandboxSpec
from sandbox_runtime.backends.records import SandboxRecord, SandboxRecords
from sandbox_runtime.backends.shared_steps import failure_of, healthy_before, not_ready

BACKLOG = 1024

logger = logging.getLogger(__name__)


class LocalSandbox(ABC):
    """See `Sandbox`. `log`: gets what setup and server print. `ended`: called when nothing of it is left.

    Its server listens on a unix socket in the record's folder.
    """

    def __init__(
        self,
        spec: SandboxSpec,
        record: SandboxRecord,
        records: SandboxRecords,
        log: OutputTail,
        ended: Callable[["LocalSandbox"], None],
    ) -> None:
        self.spec = spec
        self.records = records
        self.log = log
        self.over = asyncio.Event()
        """Set when it begins to end: no further command may run."""
        self.not_freed: SandboxError | None = None
        self._record = record
        self._on_ended = ended
        self._token = secrets.token_urlsafe(32)
        self._socket = record.sockets / "server"
        self._variables: dict[str, str] = {}
        self._stage = "create"
        self._life: asyncio.Task[SandboxExit] | None = None
        self._closing = asyncio.Event()
        self._began = time.monotonic()

    @property
    def id(self) -> str:
        return self._record.id

    @abstractmethod
    async def make(self) -> None:
        """Make it, without a command. Raises `SandboxError`, `OSError`; `clear` is called then too."""

    @abstractmethod
    async def listen(self, *ports: int) -> list[socket.socket]:
        """Return sockets that listen on loopback as its commands see it, at these ports if they are its own."""

    @abstractmethod
    def own_variables(self) -> Mapping[str, str]:
        """Return the variables of its commands that name folders and the user."""

    @abstractmethod
    def server_variables(self) -> Mapping[str, str]:
        """Return the variables that state its limits to its server."""

    @abstractmethod
    async def run(
        self, command: Command, env: Mapping[str, str], stdout: OutputTail, stderr: OutputTail | None
    ) -> int | None:
        """Run a command and end everything that it started; return its status, None if it took too long.

        `env`: all of its variables. `stderr` None: it is written to `stdout`. Raises `SandboxError`: the sandbox was
        closed while the command ran.
        """

    @abstractmethod
    async def begin_server(self, env: Mapping[str, str], listening: int) -> "asyncio.Future[int]":
        """Start `main` of the spec with this descriptor as 3; its status, or `SandboxGone`, comes later."""

    @abstractmethod
    async def clear(self) -> None:
        """End everything of it, and free it. Raises `SandboxError`, `OSError`."""

    async def exit_of(self, status: int) -> SandboxExit:
        """Return how it ended, by its server's status."""
        return SandboxExit("exited", status)

    async def begin(self) -> None:
        """Make it, and wait until its server is ready; call it once. Nothing of it is left on failure.

        Raises:
            SandboxNotReady: it did not become ready.
        """
        try:
            main = await self._start()
        except BaseException as error:
            await self._free()
            if self.not_freed is not None:
                logger.warning("%s", self.not_freed)
            if isinstance(error, OSError | SandboxError) and not isinstance(error, SandboxNotReady):
                raise self._not_ready(str(error) or f"it took longer than {self.spec.ready_s:g} s") from error
            raise
        self._life = asyncio.create_task(self._live(main))

    async def endpoint(self) -> ServerEndpoint:
        self._check_up()
        return self._endpoint()

    async def exec(self, command: Command) -> CommandResult:
        """See `Sandbox`. Raises `OSError` if the file of its input cannot be read."""
        self._check_up()
        stdout, stderr = OutputTail(EXEC_BYTES), OutputTail(EXEC_BYTES)
        began = time.monotonic()
        try:
            status = await self.run(command, {**self._variables, **command.env}, stdout, stderr)
        except SandboxError:
            raise self._gone() from None
        if status is not None:
            self._check_up()  # the end of the sandbox ended the command
        return CommandResult(status, stdout.bytes(), stderr.bytes(), time.monotonic() - began)

    async def logs(self) -> str:
        return self.log.text()

    async def wait(self) -> SandboxExit:
        assert self._life is not None, "it is up"  # noqa: S101
        return await asyncio.shield(self._life)

    async def close(self) -> None:
        self._closing.set()
        await await_shielded(self.wait())
        if self.not_freed is not None:
            raise self.not_freed

    def _endpoint(self) -> ServerEndpoint:
        return ServerEndpoint(f"http+unix://{quote(str(self._socket), safe='')}", self._token)

    def _check_up(self) -> None:
        if self.over.is_set():
            raise self._gone()

    def _gone(self) -> SandboxGone:
        return SandboxGone(f"sandbox {self.id} has ended")

    async def _start(self) -> "asyncio.Future[int]":
        async with asyncio.timeout(self.spec.ready_s):
            await self.make()
            self._variables = {
                **self.own_variables(),
                **await self._gateway_variables(),
                **self.spec.env,
                **self.spec.secrets,
            }
            self._stage = "setup"
            for command in self.spec.setup:
                status = await self.run(command, {**self._variables, **command.env}, self.log, None)
                if status != 0:
                    raise self._not_ready(failure_of(command, status))
            self._stage = "main"
            # Ours is closed at once: no client waits in its backlog when the server has ended.
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(self._socket))
                listener.listen(BACKLOG)
                own = {"GEPA_LISTEN": "fd:3", "GEPA_TOKEN": self._token, **self.server_variables()}
                env = {**self._variables, **self.spec.main.env, **own}
                main = await self.begin_server(env, listener.fileno())
        main.add_done_callback(lambda done: done.cancelled() or done.exception())  # retrieved in any case
        self._stage = "ready"
        left = max(self._began + self.spec.ready_s - time.monotonic(), 0.0)
        if not await healthy_before(main, self._endpoint(), left):
            self._stage = "main"
            raise self._not_ready(f"the server ended before it was ready, with status {main.result()}")
        return main

    async def _gateway_variables(self) -> Mapping[str, str]:
        session = self.spec.gateway_session
        if session is None:
            return {}
        models, tunnel = await self.listen(MODELS_PORT, TUNNEL_PORT)
        urls = [f"http://127.0.0.1:{listening.getsockname()[1]}" for listening in (models, tunnel)]
        await session.serve(models, tunnel)
        return session.env(*urls)

    async def _live(self, main: "asyncio.Future[int]") -> SandboxExit:
        closing = asyncio.ensure_future(self._closing.wait())
        left = self._began + self.spec.limits.lifetime_s - time.monotonic()
        try:
            waited: set[asyncio.Future[Any]] = {main, closing}
            await asyncio.wait(waited, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if self._closing.is_set():
                return SandboxExit("terminated", detail="closed")
            if not main.done():
                return SandboxExit("timed_out", detail=f"its lifetime of {self.spec.limits.lifetime_s:g} s was over")
            if self.records.is_condemned(self._record):
                return SandboxExit("terminated", detail="swept")
            if main.exception() is not None:
                return SandboxExit("terminated", detail="killed from outside")
            return await self.exit_of(main.result())
        finally:
            closing.cancel()
            await self._free()
            self._on_ended(self)

    async def _free(self) -> None:
        self.over.set()
        try:
            await await_shielded(self.clear())
        except (SandboxError, OSError) as error:
            self.not_freed = SandboxError(f"sandbox {self.id}: {error}; sweep it later")
            self.not_freed.__cause__ = error

    def _not_ready(self, why: str) -> SandboxNotReady:
        message = f"sandbox {self.id} did not become ready ({self._stage}): {why}"
        return not_ready(message, self._stage, self.log)
