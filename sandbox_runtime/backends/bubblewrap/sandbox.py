"""A sandbox made by bubblewrap: one container, in which all its commands run."""

import asyncio
import os
import posixpath
import socket
from collections.abc import Callable, Mapping

from evolverpc_common.output_tail import OutputTail
from sandbox_runtime.api.sandbox import SandboxExit
from sandbox_runtime.api.spec import Command, SandboxSpec
from sandbox_runtime.backends.bubblewrap.container import BackendContext, CommandOrder, Container
from sandbox_runtime.backends.bubblewrap.container_layout import (
    WORKSPACE,
    VisiblePaths,
    certificate_bundle,
    own_variables,
)
from sandbox_runtime.backends.bubblewrap.inputs import input_of, sealed
from sandbox_runtime.backends.local_sandbox import LocalSandbox

_KILLED = 137
_ALL_KILLED_S = 0.3
"""Seconds after which a sandbox whose main command was killed has ended too, if all of it was killed."""


class BubblewrapSandbox(LocalSandbox):
    """See `LocalSandbox`. Raises `OSError`: its record cannot be written."""

    def __init__(self, context: BackendContext, spec: SandboxSpec, ended: Callable[[LocalSandbox], None]) -> None:
        bundle = certificate_bundle()
        visible = VisiblePaths((*spec.prepared.mounts, *([] if bundle is None else [bundle])))
        self._container = Container(context, spec.labels, visible, spec.limits, context.new_user())
        super().__init__(spec, self._container.record, context.records, self._container.log, ended)

    async def make(self) -> None:
        await self._container.start()

    async def listen(self, *ports: int) -> list[socket.socket]:
        return await self._container.listen(*ports)

    def own_variables(self) -> Mapping[str, str]:
        return own_variables(self.spec.prepared)

    def server_variables(self) -> Mapping[str, str]:
        return self._container.server_variables()

    async def run(
        self, command: Command, env: Mapping[str, str], stdout: OutputTail, stderr: OutputTail | None
    ) -> int | None:
        async with input_of(command) as stdin:
            order = self._order(command, env, alone=True)
            return await self._container.run_captured(order, stdin, command.timeout_s, stdout, stderr)

    async def begin_server(self, env: Mapping[str, str], listening: int) -> "asyncio.Future[int]":
        stdin = sealed(b"")
        try:
            order = self._order(self.spec.main, env, alone=False)
            return await self._container.begin(order, self._container.logged(stdin, listening))
        finally:
            os.close(stdin)

    async def clear(self) -> None:
        await self._container.close()

    async def exit_of(self, status: int) -> SandboxExit:
        if status != _KILLED:
            return SandboxExit("exited", status)
        # A process that kills the whole sandbox kills this first.
        if await self._container.is_gone(_ALL_KILLED_S):
            return SandboxExit("terminated", detail="killed from outside")
        lacked = self._container.has_lacked_memory()
        detail = f"it was killed: the sandbox has {self.spec.limits.memory_mb} MB of memory" if lacked else ""
        return SandboxExit("exited", status, detail)

    def _order(self, command: Command, env: Mapping[str, str], *, alone: bool) -> CommandOrder:
        return CommandOrder(
            argv=command.argv,
            cwd=posixpath.normpath(posixpath.join(WORKSPACE, command.cwd)),
            env=env,
            limits=self._container.limits(server=not alone),
            alone=alone,
        )
