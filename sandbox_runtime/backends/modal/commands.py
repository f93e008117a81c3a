"""Run commands in a sandbox of Modal, each under a guard that limits it and ends everything that it started."""

import asyncio
import math
import secrets
import time
from collections.abc import AsyncIterable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import modal
from modal import exception
from modal.container_process import ContainerProcess

from evolverpc_common.output_tail import OutputTail
from evolverpc_common.shielded import await_shielded
from sandbox_runtime.api.sandbox import EXEC_BYTES, CommandResult
from sandbox_runtime.api.spec import Command, SandboxSpec
from sandbox_runtime.backends.modal import guard
from sandbox_runtime.backends.modal.image_setup import SERVER_PYTHON, WORKSPACE

_PROBE_TIMEOUT_S = 30.0

_PROBE = """
import http.client, sys, urllib.error, urllib.request

direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
try:
    status = direct.open(sys.argv[1], timeout=20).status
except urllib.error.HTTPError as error:
    status = error.code
except (OSError, http.client.HTTPException) as error:
    sys.exit(str(error))
if status != 401:
    sys.exit(f"it answers with status {status}, which is not the gateway's answer to a stranger")
"""


def probe_command(models_url: str) -> Command:
    """Return a command that requests the gateway's models without a token, and succeeds if that is refused."""
    return Command((SERVER_PYTHON, "-I", "-S", "-c", _PROBE, models_url), timeout_s=_PROBE_TIMEOUT_S)


GRACE_S = 10.0
"""Seconds beyond its own time-out after which a command's guard is given up."""

_GUARD = Path(guard.__file__).read_text(encoding="utf-8")
_CHUNK_BYTES = 2**20


class ModalCommands:
    """Runs commands in one sandbox. Raises Modal's own errors."""

    def __init__(self, sandbox: modal.Sandbox, spec: SandboxSpec) -> None:
        self._sandbox = sandbox
        self._bounds = (str(spec.limits.processes), str(spec.limits.workspace_mb))
        self._ending: set[asyncio.Task[None]] = set()

    async def start(
        self, command: Command, mark: str, *, timed: bool, env: Mapping[str, str] | None = None
    ) -> ContainerProcess[bytes]:
        """Start a command. `mark`: of its guard. `timed`: its time is limited. `env`: more variables, never shown."""
        seconds = command.timeout_s if timed else 0.0
        variables: dict[str, str | None] = {**command.env, **(env or {})}
        return await self._sandbox.exec.aio(
            *(SERVER_PYTHON, "-I", "-S", "-c", _GUARD, "run", mark, f"{seconds:g}", *self._bounds, command.cwd),
            *command.argv,
            timeout=math.ceil(command.timeout_s + GRACE_S) if timed else None,
            workdir=WORKSPACE,
            secrets=[modal.Secret.from_dict(variables)] if variables else None,
            text=False,
        )

    async def run(self, command: Command, log: OutputTail | None = None) -> CommandResult:
        """Run a command; `log` gets both of its streams. A cancellation ends the command too."""
        began = time.monotonic()
        mark = f"\n-- {secrets.token_hex(16)} --\n"
        out, err = OutputTail(EXEC_BYTES), OutputTail(EXEC_BYTES + len(mark))
        status: int | None = None
        try:
            async with asyncio.timeout(command.timeout_s + GRACE_S):
                process = await self.start(command, mark, timed=True)
                status = await self._followed(process, command, (out, err), log)
        except TimeoutError:
            self._end(mark)
        except asyncio.CancelledError:
            self._end(mark)
            raise
        written = err.bytes()
        if written.endswith(mark.encode()):
            status, written = None, written[: -len(mark)]
        return CommandResult(status, out.bytes(), written[-EXEC_BYTES:], time.monotonic() - began)

    async def close(self) -> None:
        """Stop ending commands: the sandbox ends with all of them."""
        for task in self._ending:
            task.cancel()
        await asyncio.gather(*self._ending, return_exceptions=True)

    async def _followed(
        self,
        process: ContainerProcess[bytes],
        command: Command,
        sinks: tuple[OutputTail, OutputTail],
        log: OutputTail | None,
    ) -> int | None:
        feeding = asyncio.ensure_future(_feed(process, command.stdin))
        try:
            await _both(copied(process.stdout, sinks[0], log), copied(process.stderr, sinks[1], log))
            status = await process.wait.aio()
        finally:
            # A command may end without having read its input, and then the outcome of that does not matter.
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
        return None if status == -1 else status

    def _end(self, mark: str) -> None:
        task = asyncio.create_task(self._ended(mark))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _ended(self, mark: str) -> None:
        try:
            process = await self._sandbox.exec.aio(
                *(SERVER_PYTHON, "-I", "-S", "-c", _GUARD, "end", mark), timeout=math.ceil(GRACE_S)
            )
            await process.wait.aio()
        except exception.Error:
            return  # it was to end early: its guard ends it in time, or the sandbox is gone and the command with it


async def copied(stream: AsyncIterable[bytes], *sinks: OutputTail | None) -> None:
    """Read a stream to its end into each sink."""
    async for data in stream:
        for sink in sinks:
            if sink is not None:
                sink.add(data)


async def _both(first: Coroutine[Any, Any, None], second: Coroutine[Any, Any, None]) -> None:
    tasks = [asyncio.ensure_future(first), asyncio.ensure_future(second)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await await_shielded(asyncio.wait(tasks))


async def _feed(process: ContainerProcess[bytes], stdin: bytes | Path) -> None:
    if isinstance(stdin, Path):
        with stdin.open("rb") as file:
            while piece := file.read(_CHUNK_BYTES):
                process.stdin.write(piece)
                await process.stdin.drain.aio()
    else:
        for start in range(0, len(stdin), _CHUNK_BYTES):
            process.stdin.write(stdin[start : start + _CHUNK_BYTES])
            await process.stdin.drain.aio()
    process.stdin.write_eof()
    await process.stdin.drain.aio()
