"""One sandbox at Modal: started, used, watched and ended."""

import asyncio
import contextlib
import logging
import os
import secrets
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

import modal
from modal import exception
from modal.container_process import ContainerProcess

from evolverpc_common.output_tail import OutputTail
from evolverpc_common.shielded import await_shielded
from sandbox_runtime.api.sandbox import (
    LOG_BYTES,
    CommandResult,
    SandboxError,
    SandboxExit,
    SandboxGone,
    SandboxNotReady,
    ServerEndpoint,
)
from sandbox_runtime.api.spec import MEMORY_VARIABLE, Command, SandboxSpec
from sandbox_runtime.backends.modal.api_calls import GONE, retried, translated_errors
from sandbox_runtime.backends.modal.commands import ModalCommands, carried, copied, followed, probe_command
from sandbox_runtime.backends.modal.creation import models_url
from sandbox_runtime.backends.modal.image_setup import PORT
from sandbox_runtime.backends.shared_steps import failure_of, finished_before, healthy_before, not_ready

LOST_S = 60.0
"""Seconds of errors from Modal after which a sandbox counts as lost."""

RETRY_S = 1.0

_T = TypeVar("_T")
logger = logging.getLogger(__name__)


class ModalSandbox:
    """See `Sandbox`. It is watched from the start, so that `wait` knows how it ended."""

    def __init__(self, sandbox: modal.Sandbox, spec: SandboxSpec, closed: "Callable[[ModalSandbox], object]") -> None:
        self._sandbox = sandbox
        self._spec = spec
        self._commands = ModalCommands(sandbox, spec)
        self._log = OutputTail(LOG_BYTES)
        self._token = secrets.token_urlsafe(32)
        self._ended: asyncio.Future[SandboxExit] = asyncio.get_running_loop().create_future()
        self._watching = asyncio.create_task(self._watch())
        self._main: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._closed = closed

    @property
    def id(self) -> str:
        """Modal's name for it."""
        return self._sandbox.object_id

    async def bring_up(self, *, serves: bool = True) -> None:
        """Run its setup and, if it serves, its server until that answers. Raises `SandboxNotReady`; close it then."""
        stage = "setup"
        deadline = time.monotonic() + self._spec.ready_s
        try:
            async with asyncio.timeout(self._spec.ready_s):
                for command in self._spec.setup:
                    await self._set_up(command)
                if self._spec.gateway_session is not None:
                    stage = "gateway"
                    await self._reach_gateway(models_url(self._spec.gateway_session))
                if not serves:
                    return
                stage = "main"
                endpoint = await self._start_main()
            stage = "ready"
            await self._ready(endpoint, max(0.0, deadline - time.monotonic()))
        except TimeoutError as error:
            raise self._not_ready(f"was not ready within {self._spec.ready_s:g} s: {error}", stage) from None
        except SandboxGone as error:
            raise self._not_ready(f"ended before it was ready: {error}", stage) from None

    async def endpoint(self) -> ServerEndpoint:
        """Return the address of its server, with a fresh connect token. Raises `SandboxGone`."""
        credentials = await self._asked(
            "give a connect token", lambda: retried(lambda: self._sandbox.create_connect_token.aio(port=PORT))
        )
        return ServerEndpoint(credentials.url, self._token, credentials.token)

    async def exec(self, command: Command) -> CommandResult:
        return await self._asked("run a command", lambda: self._commands.run(command))

    async def begin(self, command: Command, streams: Sequence[int]) -> "asyncio.Future[int]":
        """Start a command without a time limit whose stdin, stdout and stderr are these descriptors of this process.

        They are duplicated. The future gets its exit status, or `SandboxGone`.

        Raises:
            SandboxGone: the sandbox has ended.
        """
        process = await self._asked("start a command", lambda: self._commands.start(command))
        own = [os.dup(each) for each in streams]
        return asyncio.ensure_future(self._asked("carry the streams of a command", lambda: carried(process, own)))

    async def logs(self) -> str:
        return self._log.text()

    async def wait(self) -> SandboxExit:
        return await asyncio.shield(self._ended)

    async def close(self) -> None:
        """End it at Modal. Raises `SandboxError` if Modal does not answer; call it again to retry."""
        if self._closing is None or (self._closing.done() and (self._closing.cancelled() or self._closing.exception())):
            self._closing = asyncio.create_task(self._close())
        await await_shielded(_result_of(self._closing))

    async def _set_up(self, command: Command) -> None:
        done = await self._asked("run a command", lambda: self._commands.run(command, self._log))
        if done.status != 0:
            raise self._not_ready(failure_of(command, done.status), "setup")

    async def _reach_gateway(self, url: str) -> None:
        done = await self._asked("run a command", lambda: self._commands.run(probe_command(url)))
        if done.status != 0:
            reason = done.stderr.decode("utf-8", "replace").strip() or "it does not answer"
            raise self._not_ready(
                f"the gateway is not reached at {url}: {reason}; let the URL of `gateway` lead to its port of"
                " this machine",
                "gateway",
            )

    async def _start_main(self) -> ServerEndpoint:
        endpoint = await self.endpoint()
        env = {
            "GEPA_LISTEN": f"0.0.0.0:{PORT}",
            "GEPA_TOKEN": self._token,
            MEMORY_VARIABLE: str(self._spec.limits.memory_mb),
            "GEPA_ALLOWED_HOSTS": urlsplit(endpoint.url).hostname or "",
        }
        process = await self._asked("start the server", lambda: self._commands.start(self._spec.main, env=env))
        self._main = asyncio.create_task(self._follow(process))
        return endpoint

    async def _ready(self, endpoint: ServerEndpoint, within_s: float) -> None:
        if await healthy_before(self._ended, endpoint, within_s):
            return
        ended = self._ended.result()
        if ended.kind == "exited":
            raise self._not_ready(f"{self._spec.main.argv[0]} exited with status {ended.status}", "main")
        raise self._not_ready(f"it has ended before its server was ready: {_describe(ended)}", "main")

    async def _follow(self, process: ContainerProcess[bytes]) -> None:
        """Keep the server's output; the sandbox has ended when the server has."""
        try:
            status = await followed(process, copied(process.stdout, self._log), copied(process.stderr, self._log))
        except exception.Error as error:
            logger.debug("the output of main of %s has ended: %s", self.id, error)
            return  # the sandbox itself is watched
        if status >= 0:
            self._settle(SandboxExit("exited", status))
            with contextlib.suppress(SandboxError):  # its holder sleeps on until its lifetime is over, or it is closed
                await self._terminate()

    async def _watch(self) -> None:
        failing_since: float | None = None
        while not self._ended.done():
            try:
                await self._sandbox.wait.aio(raise_on_termination=True)
                detail = f"its container ended by itself, with status {self._sandbox.returncode}"
                self._settle(SandboxExit("lost", detail=detail))
            except exception.SandboxTimeoutError:
                self._settle(SandboxExit("timed_out"))
            except exception.SandboxTerminatedError:
                self._settle(SandboxExit("terminated"))
            except GONE as error:
                self._settle(SandboxExit("lost", detail=str(error)))
            except (exception.Error, ConnectionError) as error:
                failing_since = failing_since or time.monotonic()
                if time.monotonic() - failing_since > LOST_S:
                    self._settle(SandboxExit("lost", detail=f"Modal reports errors only: {error}"))
                await asyncio.sleep(RETRY_S)

    def _settle(self, ended: SandboxExit) -> None:
        if not self._ended.done():
            self._ended.set_result(ended)

    async def _asked(self, what: str, call: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Return what the call returns; raise `SandboxGone` as soon as the sandbox has ended."""
        if self._ended.done():
            raise self._gone()
        with translated_errors(what):
            called = await finished_before(self._ended, call())
            if called is not None:
                return called.result()
        raise self._gone()

    def _gone(self) -> SandboxGone:
        return SandboxGone(f"sandbox {self.id} has ended: {_describe(self._ended.result())}")

    def _not_ready(self, what: str, stage: str) -> SandboxNotReady:
        return not_ready(f"sandbox {self.id}: {what}", stage, self._log)

    async def _terminate(self) -> None:
        with translated_errors(f"end sandbox {self.id}"):
            try:
                await retried(lambda: self._sandbox.terminate.aio())
            except GONE:
                return  # it has ended

    async def _close(self) -> None:
        try:
            await self._terminate()
            self._settle(SandboxExit("terminated"))
        except SandboxError as error:
            self._settle(SandboxExit("lost", detail=f"it could not be ended: {error}"))
            raise SandboxError(
                f"sandbox {self.id} may be left at Modal until its lifetime is over, or it is swept: {error}"
            ) from error
        finally:
            for task in (self._watching, self._main):
                if task is not None:
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)
            await self._commands.close()
        self._closed(self)
        await self._sandbox.detach.aio()  # type: ignore[no-untyped-call]  # after that nothing can be asked, to end it either


def _describe(ended: SandboxExit) -> str:
    status = "" if ended.status is None else f" with status {ended.status}"
    return f"{ended.kind}{status}" + (f", {ended.detail}" if ended.detail else "")


async def _result_of(task: asyncio.Task[_T]) -> _T:
    return await task
