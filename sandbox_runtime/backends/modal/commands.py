"""Run commands in a sandbox of Modal, each under a reaper that limits it and ends everything that it started."""

import asyncio
import contextlib
import math
import os
import secrets
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import modal
from modal import exception
from modal.container_process import ContainerProcess

from evolverpc_common import process_reaper
from evolverpc_common.output_tail import OutputTail
from evolverpc_common.shielded import await_shielded
from sandbox_runtime.api.spec import Command, SandboxSpec
from sandbox_runtime.backends.image_setup import SERVER_PYTHON, WORKSPACE

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
"""Seconds within which a command that takes too long is ended; Modal ends it after them, and not what it started."""

_REAPER = Path(process_reaper.__file__).read_text(encoding="utf-8")
_WITH_FOLDERS = ("sh", "-c", 'mkdir -p "$HOME" "$TMPDIR" && exec "$@"', "sh")
_END = 'kill $(grep -lsxz -e"--mark=$1" /proc/[0-9]*/cmdline | cut -d/ -f3)'
_PIECE_BYTES = 2**20


class ModalCommands:
    """Runs commands in one sandbox. Raises Modal's own errors."""

    def __init__(self, sandbox: modal.Sandbox, spec: SandboxSpec) -> None:
        self._sandbox = sandbox
        self._limits = (f"--processes={spec.limits.processes}", f"--file-size={spec.limits.workspace_mb << 20}")

    async def start(
        self, command: Command, mark: str | None = None, *, env: Mapping[str, str] | None = None
    ) -> ContainerProcess[bytes]:
        """Start a command. `mark`: of its reaper if its time is limited. `env`: more variables, never shown."""
        options = [*self._limits, f"--folder={command.cwd}", *([] if mark is None else [f"--mark={mark}"])]
        variables: dict[str, str | None] = {**command.env, **(env or {})}
        return await self._sandbox.exec.aio(
            *(*_WITH_FOLDERS, SERVER_PYTHON, "-I", "-S", "-c", _REAPER, *options, "--", *command.argv),
            timeout=None if mark is None else math.ceil(command.timeout_s + GRACE_S),
            workdir=WORKSPACE,
            secrets=[modal.Secret.from_dict(variables)] if variables else None,
            text=False,
        )

    async def run(self, command: Command, stdout: OutputTail, stderr: OutputTail | None = None) -> int | None:
        """See `StartedSandbox.run`. A cancellation ends the command too."""
        mark = secrets.token_hex(16)
        status: int | None = None
        try:
            async with asyncio.timeout(command.timeout_s):
                process = await self.start(command, mark)
                with command.open_input() as stdin:
                    status = await followed(
                        process,
                        copied(process.stdout, stdout),
                        copied(process.stderr, stdout if stderr is None else stderr),
                        feeding=_fed(process, partial(asyncio.to_thread, stdin.read)),
                    )
        except TimeoutError:
            return None
        finally:
            if status is None:
                await await_shielded(self._end(mark))
        return None if status == -1 else status

    async def _end(self, mark: str) -> None:
        try:
            async with asyncio.timeout(GRACE_S):
                process = await self._sandbox.exec.aio("sh", "-c", _END, "sh", mark, timeout=math.ceil(GRACE_S))
                await process.wait.aio()
        except (exception.Error, ConnectionError, TimeoutError):
            return  # the sandbox is gone and the command with it, or Modal ends the command after its time


async def followed(
    process: ContainerProcess[bytes],
    *outputs: Coroutine[Any, Any, None],
    feeding: Coroutine[Any, Any, None] | None = None,
) -> int:
    """Return a command's status once its outputs have ended, which these read. Raises Modal's own errors.

    `feeding`: writes its input; a command may end without having read that, and then its outcome does not matter.
    """
    reading = [asyncio.ensure_future(each) for each in outputs]
    tasks = reading if feeding is None else [*reading, asyncio.ensure_future(feeding)]
    try:
        await asyncio.gather(*reading)
        return await process.wait.aio()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def copied(stream: AsyncIterable[bytes], sink: OutputTail) -> None:
    """Read a stream to its end."""
    async for data in stream:
        sink.add(data)


async def carried(process: ContainerProcess[bytes], streams: Sequence[int]) -> int:
    """Carry stdin, stdout and stderr of a command from and to these descriptors, which are closed; see `followed`."""
    stdin, stdout, stderr = streams
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(stdin, "rb", buffering=0)
    )
    try:
        outputs = (_written(process.stdout, stdout), _written(process.stderr, stderr))
        return await followed(process, *outputs, feeding=_fed(process, reader.read))
    finally:
        transport.close()


async def _fed(process: ContainerProcess[bytes], read: Callable[[int], Awaitable[bytes]]) -> None:
    while piece := await read(_PIECE_BYTES):
        process.stdin.write(piece)
        await process.stdin.drain.aio()
    process.stdin.write_eof()
    await process.stdin.drain.aio()


async def _written(stream: AsyncIterable[bytes], descriptor: int) -> None:
    with os.fdopen(descriptor, "wb", buffering=0) as target:
        async for piece in stream:
            rest = piece
            with contextlib.suppress(BrokenPipeError):  # its reader is gone; the rest is read all the same
                while rest:
                    rest = rest[await asyncio.to_thread(os.write, target.fileno(), rest) :]
