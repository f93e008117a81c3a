"""A sandbox made by bubblewrap: its setup, the start of its server, its use and its end."""

import asyncio
import os
import posixpath
import secrets
import socket
import time
from collections.abc import Mapping
from typing import Literal
from urllib.parse import quote

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
from sandbox_runtime.backends.bubblewrap.container import BackendContext, CommandOrder, Container
from sandbox_runtime.backends.bubblewrap.container_layout import (
    WORKSPACE,
    VisiblePaths,
    certificate_bundle,
    variables,
)
from sandbox_runtime.backends.bubblewrap.inputs import input_of, sealed
from sandbox_runtime.backends.shared_steps import failure_of, healthy_before, not_ready

_LISTENING = 3
_BACKLOG = 512
_KILLED = 137
_ALL_KILLED_S = 0.3
"""Seconds after which a sandbox whose main command was killed has ended too, if all of it was killed."""

Stage = Literal["create", "setup", "main", "ready"]


class BubblewrapSandbox:
    """Made by `BubblewrapRuntime.start`; see `Sandbox`."""

    def __init__(self, context: BackendContext, spec: SandboxSpec) -> None:
        self._spec = spec
        bundle = certificate_bundle()
        visible = VisiblePaths((*spec.prepared.mounts, *([] if bundle is None else [bundle])))
        self._container = Container(context, spec.labels, visible, spec.limits, context.new_user())
        self._token = secrets.token_urlsafe(32)
        self._socket = self._container.record.sockets / "server"
        self._main: asyncio.Future[int] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._lifetime: asyncio.TimerHandle | None = None
        self._freeing: asyncio.Task[None] | None = None
        self._ended: asyncio.Future[SandboxExit] = asyncio.get_running_loop().create_future()
        self.stage: Stage = "create"
        self.not_freed: SandboxError | None = None

    @property
    def id(self) -> str:
        return self._container.record.id

    async def bring_up(self) -> None:
        """Start it, and wait until its server is ready.

        Raises `SandboxError`, `OSError` or `TimeoutError`; it must be closed then too.
        """
        loop = asyncio.get_running_loop()
        self._lifetime = loop.call_later(
            self._spec.limits.lifetime_s, self._end, SandboxExit("timed_out", detail="its lifetime is over")
        )
        async with asyncio.timeout(self._spec.ready_s):
            await self._container.start()
            self._watching = asyncio.create_task(self._watch())
            if self._spec.gateway_session is not None:
                await self._spec.gateway_session.serve(*await self._container.listen(MODELS_PORT, TUNNEL_PORT))
            self.stage = "setup"
            for command in self._spec.setup:
                await self._set_up(command)
            self.stage = "main"
            self._main = await self._start_main()
            self._main.add_done_callback(self._main_ended)
            await self._until_ready()

    async def _set_up(self, command: Command) -> None:
        async with input_of(command) as stdin:
            order = self._order(command, alone=True)
            status = await self._container.run(order, self._container.logged(stdin), command.timeout_s)
        if status != 0:
            raise self.not_ready(failure_of(command, status))

    async def _start_main(self) -> "asyncio.Future[int]":
        own = {"GEPA_LISTEN": f"fd:{_LISTENING}", "GEPA_TOKEN": self._token, **self._container.server_variables()}
        order = self._order(self._spec.main, alone=False, own=own)
        stdin = sealed(b"")
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
                listener.bind(str(self._socket))
                listener.listen(_BACKLOG)
                return await self._container.begin(order, self._container.logged(stdin, listener.fileno()))
        finally:
            os.close(stdin)

    def _order(self, command: Command, *, alone: bool, own: Mapping[str, str] | None = None) -> CommandOrder:
        return CommandOrder(
            argv=command.argv,
            cwd=posixpath.normpath(posixpath.join(WORKSPACE, command.cwd)),
            env={**variables(self._spec, command), **(own or {})},
            limits=self._container.limits(server=not alone),
            alone=alone,
        )

    async def _until_ready(self) -> None:
        assert self._main is not None  # noqa: S101  `_start_main` made it
        endpoint = await self.endpoint()
        self.stage = "ready"
        if not await healthy_before(self._main, endpoint, self._spec.ready_s):
            self.stage = "main"
            status = self._main.exception() or self._main.result()
            raise self.not_ready(f"{self._spec.main.argv[0]} ended before it was ready: {status}")

    def not_ready(self, why: str) -> SandboxNotReady:
        """Return the error, with the end of the log."""
        message = f"sandbox {self.id} did not become ready ({self.stage}): {why}"
        return not_ready(message, self.stage, self._container.log)

    async def endpoint(self) -> ServerEndpoint:
        self._check_up()
        return ServerEndpoint(url=f"http+unix://{quote(str(self._socket), safe='')}", token=self._token)

    async def exec(self, command: Command) -> CommandResult:
        """Run a command beside the server, in a pid namespace of its own."""
        self._check_up()
        began = time.monotonic()
        async with input_of(command) as stdin:
            order = self._order(command, alone=True)
            try:
                status, stdout, stderr = await self._container.run_captured(order, stdin, EXEC_BYTES, command.timeout_s)
            except SandboxError:
                raise SandboxGone(f"sandbox {self.id} has ended") from None
        if status is not None:
            self._check_up()  # its end ended this too
        return CommandResult(status, stdout, stderr, time.monotonic() - began)

    async def logs(self) -> str:
        return self._container.log.text()

    async def wait(self) -> SandboxExit:
        return await asyncio.shield(self._ended)

    async def close(self) -> None:
        self._end(SandboxExit("terminated", detail="closed"))
        await await_shielded(self.wait())
        if self.not_freed is not None:
            raise self.not_freed

    def _check_up(self) -> None:
        if self._freeing is not None:
            raise SandboxGone(f"sandbox {self.id} has ended")

    def _end(self, ended: SandboxExit) -> None:
        """Start to free it, if nothing has ended it before."""
        if self._freeing is None:
            self._freeing = asyncio.ensure_future(self._free(ended))

    async def _free(self, ended: SandboxExit) -> None:
        try:
            if self._lifetime is not None:
                self._lifetime.cancel()
            await self._container.close()
            if self._watching is not None:
                await asyncio.wait({self._watching})
            if self._main is not None:
                await asyncio.wait({self._main})
        except (SandboxError, OSError) as error:
            self.not_freed = SandboxError(f"sandbox {self.id}: {error}; sweep it later")
            self.not_freed.__cause__ = error
        except BaseException as error:
            self._ended.set_exception(error)
            raise
        self._ended.set_result(ended)

    async def _watch(self) -> None:
        """Wait for an end that was not requested here."""
        await self._container.gone()
        swept = "swept" if self._container.is_condemned else "killed from outside"
        self._end(SandboxExit("terminated", detail=swept))

    def _main_ended(self, main: "asyncio.Future[int]") -> None:
        if main.cancelled() or main.exception() is not None:
            return  # the sandbox has ended, which `_watch` reports
        status = main.result()
        ended = SandboxExit("exited", status)
        if status == _KILLED:
            if self._container.has_lacked_memory():
                ended = SandboxExit(
                    "exited", status, f"it was killed: the sandbox has {self._spec.limits.memory_mb} MB of memory"
                )
            # A process that kills the whole sandbox kills this first.
            asyncio.get_running_loop().call_later(_ALL_KILLED_S, self._end, ended)
        else:
            self._end(ended)
