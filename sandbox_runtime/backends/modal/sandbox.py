"""One sandbox at Modal: used and watched."""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

import modal
from modal import exception

from evolverpc_common.output_tail import OutputTail
from sandbox_runtime.api.sandbox import EXEC_BYTES, SandboxExit, SandboxGone, SandboxNotReady, ServerEndpoint
from sandbox_runtime.api.spec import MEMORY_VARIABLE, Command, SandboxSpec
from sandbox_runtime.backends.image_setup import PORT
from sandbox_runtime.backends.modal.api_calls import GONE, retried, translated_errors
from sandbox_runtime.backends.modal.commands import ModalCommands, carried, copied, followed, probe_command
from sandbox_runtime.backends.modal.creation import models_url
from sandbox_runtime.runtime.health import finished_before

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
        self._commands = ModalCommands(at_modal, spec)
        self._ended = asyncio.create_task(self._watch())

    @property
    def id(self) -> str:
        """Modal's name for it."""
        return self.at_modal.object_id

    async def run(self, command: Command, stdout: OutputTail, stderr: OutputTail | None = None) -> int | None:
        return await self._asked("run a command", lambda: self._commands.run(command, stdout, stderr))

    async def begin(self, command: Command, streams: Sequence[int]) -> "asyncio.Future[int]":
        """Start a command without a time limit whose stdin, stdout and stderr are these descriptors of this process.

        They are duplicated. The future gets its exit status, or `SandboxGone`.

        Raises:
            SandboxGone: the sandbox has ended.
        """
        process = await self._asked("start a command", lambda: self._commands.start(command))
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
        process = await self._asked("start the server", lambda: self._commands.start(main, env=env))
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

    async def _asked(self, what: str, call: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Return what the call returns; raise `SandboxGone` as soon as the sandbox has ended."""
        if not self._ended.done():
            with translated_errors(what):
                called = await finished_before(self._ended, call())
                if called is not None:
                    return called.result()
        raise SandboxGone(f"sandbox {self.id} has ended")
