"""A bubblewrap sandbox that is up, from its setup and the start of its server to its end."""

import asyncio
import os
import posixpath
import secrets
import socket
import time
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import quote

from evolverpc_common.shielded import all_of
from sandbox_runtime.api.endpoint import Endpoint
from sandbox_runtime.api.gateway_session import MODELS_PORT, TUNNEL_PORT
from sandbox_runtime.api.sandbox import EXEC_BYTES, Ended, Executed, Gone, NotReady, SandboxError
from sandbox_runtime.api.spec import Command, SandboxSpec
from sandbox_runtime.backends.bubblewrap.bounds import Bounds
from sandbox_runtime.backends.bubblewrap.box import Box
from sandbox_runtime.backends.bubblewrap.inputs import input_of, sealed
from sandbox_runtime.backends.bubblewrap.layout import WORKSPACE, Shape
from sandbox_runtime.backends.bubblewrap.machine import Machine
from sandbox_runtime.backends.bubblewrap.order import RunOrder
from sandbox_runtime.backends.bubblewrap.packages import MAIN, SERVER
from sandbox_runtime.backends.bubblewrap.variables import certificate_bundle, variables
from sandbox_runtime.backends.health import until_healthy

_LISTENING = 3
_BACKLOG = 512
_KILLED = 137
_ALL_KILLED_S = 0.3
"""How long after its main command was killed a sandbox that was killed as a whole is certainly gone."""

Stage = Literal["create", "setup", "main", "ready"]


class BubblewrapSandbox:
    """Made by `BubblewrapRuntime.start`; see `Sandbox`."""

    def __init__(self, machine: Machine, spec: SandboxSpec) -> None:
        self._machine = machine
        self._spec = spec
        bundle = certificate_bundle()
        shape = Shape((*spec.prepared.mounts, *([] if bundle is None else [bundle])))
        self._box = Box(machine, spec.labels, shape, Bounds.of(spec), machine.new_user())
        self._token = secrets.token_urlsafe(32)
        self._socket = self._box.record.sockets / "server"
        self._main: asyncio.Future[int] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._lifetime: asyncio.TimerHandle | None = None
        self._freeing: asyncio.Task[None] | None = None
        self._ended: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self.stage: Stage = "create"
        self.not_freed: SandboxError | None = None

    @property
    def id(self) -> str:
        """What the runtime calls it."""
        return self._box.record.id

    async def bring_up(self) -> None:
        """Until its server is ready. Raises `SandboxError`, `OSError` or `TimeoutError`; it must be closed then too."""
        loop = asyncio.get_running_loop()
        self._lifetime = loop.call_later(
            self._spec.lifetime_s, self._end, Ended("timed_out", detail="its lifetime is over")
        )
        async with asyncio.timeout(self._spec.ready_s):
            await self._box.start()
            self._watching = asyncio.create_task(self._watch())
            if self._spec.way_out is not None:
                await self._spec.way_out.serve(*await self._box.listen(MODELS_PORT, TUNNEL_PORT))
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
            status = await self._box.run(order, self._box.logged(stdin), command.timeout_s)
        if status != 0:
            became = f"took longer than {command.timeout_s:g} s" if status is None else f"exited with status {status}"
            raise self.not_ready(f"{command.argv[0]} {became}")

    async def _start_main(self) -> "asyncio.Future[int]":
        own = {"GEPA_LISTEN": f"fd:{_LISTENING}", "GEPA_TOKEN": self._token, **self._box.server_variables()}
        order = self._order(self._spec.main, alone=False, own=own)
        stdin = sealed(b"")
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
                listener.bind(str(self._socket))
                listener.listen(_BACKLOG)
                return await self._box.begin(order, self._box.logged(stdin, listener.fileno()))
        finally:
            os.close(stdin)

    def _order(self, command: Command, *, alone: bool, own: Mapping[str, str] | None = None) -> RunOrder:
        argv, warm = command.argv, None
        if not alone and self._machine.warm and argv[: len(SERVER)] == SERVER:
            argv, warm = ("gepa-server", *argv[len(SERVER) :]), MAIN
        return RunOrder(
            argv=argv,
            cwd=posixpath.normpath(posixpath.join(WORKSPACE, command.cwd)),
            env={**variables(self._spec, command), **(own or {})},
            limits=self._box.limits(server=not alone),
            alone=alone,
            warm=warm,
        )

    async def _until_ready(self) -> None:
        assert self._main is not None  # noqa: S101  `_start_main` made it
        healthy = asyncio.ensure_future(until_healthy(await self.endpoint(), self._spec.ready_s))
        try:
            either: set[asyncio.Future[Any]] = {healthy, self._main}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if self._main.done() and not (healthy.done() and healthy.exception() is None):
                status = self._main.exception() or self._main.result()
                raise self.not_ready(f"{self._spec.main.argv[0]} ended before it was ready: {status}")
            self.stage = "ready"
            healthy.result()
        except asyncio.CancelledError:
            self.stage = "ready"
            raise
        finally:
            healthy.cancel()

    def not_ready(self, why: str) -> NotReady:
        """The error that says so, with the end of its log."""
        tail = self._box.said()
        told = f"sandbox {self.id} did not become ready ({self.stage}): {why}\n{tail}".rstrip()
        return NotReady(told, stage=self.stage, log_tail=tail)

    async def endpoint(self) -> Endpoint:
        """Where its server answers."""
        self._check_up()
        return Endpoint(url=f"http+unix://{quote(str(self._socket), safe='')}", token=self._token)

    async def exec(self, command: Command) -> Executed:
        """Run a command beside the server, in pids of its own."""
        self._check_up()
        began = time.monotonic()
        async with input_of(command) as stdin:
            order = self._order(command, alone=True)
            try:
                status, stdout, stderr = await self._box.run_heard(order, stdin, EXEC_BYTES, command.timeout_s)
            except SandboxError:
                raise Gone(f"sandbox {self.id} has ended") from None
        if status is not None:
            self._check_up()  # its end ended this too
        return Executed(status, stdout, stderr, time.monotonic() - began)

    async def logs(self) -> str:
        """The end of what `setup` and `main` wrote."""
        return self._box.log.text()

    async def wait(self) -> Ended:
        """Until it has ended and all of it is freed."""
        return await asyncio.shield(self._ended)

    async def close(self) -> None:
        """End it and free everything of it. Raises `SandboxError` where something stays."""
        self._end(Ended("terminated", detail="closed"))
        await all_of(self.wait())
        if self.not_freed is not None:
            raise self.not_freed

    def _check_up(self) -> None:
        if self._freeing is not None:
            raise Gone(f"sandbox {self.id} has ended")

    def _end(self, ended: Ended) -> None:
        """Begin to free it, if nothing ended it before."""
        if self._freeing is None:
            self._freeing = asyncio.ensure_future(self._free(ended))

    async def _free(self, ended: Ended) -> None:
        try:
            if self._lifetime is not None:
                self._lifetime.cancel()
            await self._box.close()
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
        """For an end that nobody here asked for."""
        await self._box.gone()
        if self._machine.door.lost.done():
            self._end(Ended("lost", detail="the process that kept it has ended"))
        else:
            swept = "swept" if self._box.is_condemned else "killed from outside"
            self._end(Ended("terminated", detail=swept))

    def _main_ended(self, main: "asyncio.Future[int]") -> None:
        if main.cancelled() or main.exception() is not None:
            return  # the sandbox has ended, which `_watch` tells
        status = main.result()
        ended = Ended("exited", status)
        if status == _KILLED:
            if self._box.has_lacked_memory():
                ended = Ended("exited", status, f"it was killed: the sandbox has {self._spec.memory_mb} MB of memory")
            # Whoever kills the sandbox kills this first.
            asyncio.get_running_loop().call_later(_ALL_KILLED_S, self._end, ended)
        else:
            self._end(ended)
