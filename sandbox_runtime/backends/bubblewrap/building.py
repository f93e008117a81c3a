"""Runs the commands that build an environment: in a sandbox of their own, as they are somebody's code."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from evolverpc_common.shielded import to_the_end
from sandbox_runtime.api.gateway_session import MODELS_PORT, TUNNEL_PORT, Passage
from sandbox_runtime.api.sandbox import NotPrepared, SandboxError
from sandbox_runtime.backends.bubblewrap.bounds import Bounds
from sandbox_runtime.backends.bubblewrap.box import Box
from sandbox_runtime.backends.bubblewrap.inputs import sealed
from sandbox_runtime.backends.bubblewrap.layout import Shape
from sandbox_runtime.backends.bubblewrap.machine import Machine
from sandbox_runtime.backends.bubblewrap.order import RunOrder
from sandbox_runtime.backends.bubblewrap.variables import MODELS_URL, TUNNEL_URL

_OUTPUT_BYTES = 64 * 1024
_MEMORY_MB = 8192
_WORKSPACE_MB = 64
_PROCESSES = 1024


class Builder:
    """`way_out`: what builds may reach, None for nothing."""

    def __init__(self, machine: Machine, way_out: Passage | None) -> None:
        self._machine = machine
        self._way_out = way_out

    async def run(
        self, argv: Sequence[str], cwd: Path, env: Mapping[str, str], timeout_s: float, readable: Sequence[str]
    ) -> tuple[int, bytes]:
        """Run one command, as `environments.Run` says; its network is the way out alone."""
        try:
            return await self._run(argv, cwd, env, timeout_s, readable)
        except TimeoutError:
            raise
        except OSError as error:
            raise NotPrepared(f"{argv[0]} cannot be run: {error}") from error

    async def _run(
        self, argv: Sequence[str], cwd: Path, env: Mapping[str, str], timeout_s: float, readable: Sequence[str]
    ) -> tuple[int, bytes]:
        bounds = Bounds(float(os.cpu_count() or 1), _MEMORY_MB, _WORKSPACE_MB, _PROCESSES, timeout_s)
        user = self._machine.builder
        if user is not None:
            await to_the_end(_give, cwd, user)
        box = Box(self._machine, {"purpose": "build"}, Shape(tuple(readable), cwd), bounds, user)
        stdin = sealed(b"")
        try:
            try:
                await box.start()
            except SandboxError as error:
                raise NotPrepared(f"{argv[0]} cannot be run: {error}\n{box.said()}".rstrip()) from error
            variables = dict(env)
            if self._way_out is not None:
                await self._way_out.serve(*await box.listen(MODELS_PORT, TUNNEL_PORT))
                variables |= self._way_out.env(MODELS_URL, TUNNEL_URL)
            order = RunOrder(list(argv), str(cwd), variables, box.limits(), alone=True)
            status, output, _ = await box.run_heard(order, stdin, _OUTPUT_BYTES, timeout_s, together=True)
        finally:
            os.close(stdin)
            await box.close()
        if status is None:
            raise TimeoutError(f"{argv[0]} took longer than {timeout_s:g} s")
        return status, output


def _give(folder: Path, user: int) -> None:
    """Have it belong to the user that builds. Links are not followed."""
    for parent, folders, files in os.walk(folder):
        for path in (parent, *(f"{parent}/{name}" for name in (*folders, *files))):
            if os.lstat(path).st_uid != user:
                os.lchown(path, user, user)
