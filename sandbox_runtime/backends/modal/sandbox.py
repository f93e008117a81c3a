"""One sandbox at Modal: used, watched, and its commands, each under a reaper that ends everything that it started."""

import asyncio
import contextlib
import logging
import math
import os
import secrets
import time
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import modal
from modal import exception
from modal.container_process import ContainerProcess

from evolverpc_common import process_reaper
from evolverpc_common.output_tail import OutputTail
from evolverpc_common.shielded import await_shielded, finished_before
from sandbox_runtime.api.sandbox import EXEC_BYTES, SandboxExit, SandboxGone, SandboxNotReady, ServerEndpoint
from sandbox_runtime.api.spec import MEMORY_VARIABLE, Command, SandboxSpec
from sandbox_runtime.backends.image_setup import PORT, SERVER_PYTHON, WORKSPACE
from sandbox_runtime.backends.modal.api_calls import GONE, retried, translated_errors
from sandbox_runtime.backends.modal.egress_and_tags import models_url

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


LOST_S = 60.0
"""Seconds of errors from Modal after which a sandbox counts as lost."""

RETRY_S = 1.0

_T = TypeVar("_T")
logger = logging.getLogger(__name__)


class ModalSandbox:
    """See `StartedSandbox`. It is watched from the start, so that every call ends when it has."""

    def __init__(self, at_modal: modal.Sandbox, spec: SandboxSpec, log: OutputTail) -> None:
        self.at_modal = at_modal
        self._spec = spec
        self._log = log
        self._limits = (f"--processes={spec.limits.processes}", f"--file-size={spec.limits.workspace_mb << 20}")
        self._ended = asyncio.create_task(self._watch())

    @property
    def id(self) -> str:
        """Modal's name for it."""
        return self.at_modal.object_id

    async def run(self, command: Command, stdout: OutputTail, stderr: OutputTail | None = None) -> int | None:
        return await self._asked("run a command", lambda: self._run(command, stdout, stderr))

    async def begin(self, command: Command, streams: Sequence[int]) -> "asyncio.Future[int]":
        """Start a command without a time limit whose stdin, stdout and stderr are these descriptors of this process.

        They are duplicated. The future gets its exit status, or `SandboxGone`.

        Raises:
            SandboxGone: the sandbox has ended.
        """
        process = await self._asked("start a command", lambda: self._start(command))
        own = [os.dup(each) for each in streams]
        return asyncio.ensure_future(self._asked("carry the streams of a command", lambda: carried(process, own)))

    async def serve(self, main: Command, endpoint: ServerEndpoint) -> SandboxExit:
        if self._spec.gateway_session is not None:
            await self._reach_gateway(models_url(self._spec.gateway_session))
        env = {
            "GEPA_LISTEN": f"0.0.0.0:{PORT}",
            "GEPA_TOKEN": endpoint.token,
            MEMORY_VARIABLE: str(self._spec.limits.memory_mb),
            "GEPA_ALLOWED_HOSTS": urlsplit(endpoint.url).hostname or "",
        }
        process = await self._asked("start the server", lambda: self._start(main, env=env))
        try:
            outputs = (copied(process.stdout, self._log), copied(process.stderr, self._log))
            following = await finished_before(self._ended, followed(process, *outputs))
            if following is not None and (status := following.result()) >= 0:
                return SandboxExit("exited", status)
        except (exception.Error, ConnectionError) as error:
            logger.debug("the output of main of %s has ended: %s", self.id, error)
        return await asyncio.shield(self._ended)  # the sandbox itself is watched

    async def endpoint(self, token: str) -> ServerEndpoint:
        """Return the address of its server, with a fresh connect token. Raises `SandboxGone`."""
        with translated_errors("give a connect token"):
            credentials = await retried(lambda: self.at_modal.create_connect_token.aio(port=PORT))
        return ServerEndpoint(credentials.url, token, credentials.token)

    async def forget(self) -> None:
        """Watch it no longer: every call ends."""
        self._ended.cancel()
        await asyncio.gather(self._ended, return_exceptions=True)

    async def _reach_gateway(self, url: str) -> None:
        stdout, stderr = OutputTail(EXEC_BYTES), OutputTail(EXEC_BYTES)
        if await self.run(probe_command(url), stdout, stderr) != 0:
            raise SandboxNotReady(
                f"sandbox {self.id}: the gateway is not reached at {url}: {stderr.text().strip() or 'no answer'}; let"
                " the URL of `gateway` lead to its port of this machine",
                stage="gateway",
            )

    async def _watch(self) -> SandboxExit:
        failing_since: float | None = None
        while True:
            try:
                await self.at_modal.wait.aio(raise_on_termination=True)
                detail = f"its container ended by itself, with status {self.at_modal.returncode}"
                return SandboxExit("lost", detail=detail)
            except exception.SandboxTimeoutError:
                return SandboxExit("timed_out")
            except exception.SandboxTerminatedError:
                return SandboxExit("terminated")
            except GONE as error:
                return SandboxExit("lost", detail=str(error))
            except (exception.Error, ConnectionError) as error:
                failing_since = failing_since or time.monotonic()
                if time.monotonic() - failing_since > LOST_S:
                    return SandboxExit("lost", detail=f"Modal reports errors only: {error}")
                await asyncio.sleep(RETRY_S)

    async def _start(
        self, command: Command, mark: str | None = None, *, env: Mapping[str, str] | None = None
    ) -> ContainerProcess[bytes]:
        """Start a command. `mark`: of its reaper if its time is limited. `env`: more variables, never shown.

        Raises Modal's own errors.
        """
        options = [*self._limits, f"--folder={command.cwd}", *([] if mark is None else [f"--mark={mark}"])]
        variables: dict[str, str | None] = {**command.env, **(env or {})}
        return await self.at_modal.exec.aio(
            *(*_WITH_FOLDERS, SERVER_PYTHON, "-I", "-S", "-c", _REAPER, *options, "--", *command.argv),
            timeout=None if mark is None else math.ceil(command.timeout_s + GRACE_S),
            workdir=WORKSPACE,
            secrets=[modal.Secret.from_dict(variables)] if variables else None,
            text=False,
        )

    async def _run(self, command: Command, stdout: OutputTail, stderr: OutputTail | None) -> int | None:
        """See `StartedSandbox.run`. Raises Modal's own errors."""
        mark = secrets.token_hex(16)
        status: int | None = None
        try:
            async with asyncio.timeout(command.timeout_s):
                process = await self._start(command, mark)
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
                process = await self.at_modal.exec.aio("sh", "-c", _END, "sh", mark, timeout=math.ceil(GRACE_S))
                await process.wait.aio()
        except (exception.Error, ConnectionError, TimeoutError):
            return  # the sandbox is gone and the command with it, or Modal ends the command after its time

    async def _asked(self, what: str, call: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Return what the call returns; raise `SandboxGone` as soon as the sandbox has ended."""
        if not self._ended.done():
            with translated_errors(what):
                called = await finished_before(self._ended, call())
                if called is not None:
                    return called.result()
        raise SandboxGone(f"sandbox {self.id} has ended")
