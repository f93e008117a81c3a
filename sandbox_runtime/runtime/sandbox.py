"""One sandbox of any backend: what a backend does for it, its setup, the start of its server, its use and its end."""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from evolverpc_common.output_tail import OutputTail
from evolverpc_common.shielded import await_shielded
from sandbox_runtime.api.sandbox import (
    EXEC_BYTES,
    CommandResult,
    EgressNotEnforced,
    EnvironmentMissing,
    RuntimeThrottled,
    RuntimeUnavailable,
    SandboxError,
    SandboxExit,
    SandboxGone,
    SandboxNotReady,
    ServerEndpoint,
)
from sandbox_runtime.api.spec import Command, SandboxSpec
from sandbox_runtime.runtime.health import finished_before, wait_until_healthy

OWN_MEANING = (EgressNotEnforced, EnvironmentMissing, RuntimeThrottled, RuntimeUnavailable, SandboxNotReady)
"""Errors that `Runtime.start` raises as they are; any other means that the sandbox did not become ready."""

_LOG_TAIL_BYTES = 4096
_T = TypeVar("_T")
logger = logging.getLogger(__name__)


class StartedSandbox(Protocol):
    """A sandbox of a backend, which runs commands and one server until `Runtime.stop` ends it."""

    @property
    def id(self) -> str:
        """The name that its backend gives it."""
        ...

    async def run(self, command: Command, stdout: OutputTail, stderr: OutputTail | None = None) -> int | None:
        """Run a command, and end everything that it started, also if this is cancelled.

        Return its status, 128 + signal if a signal ended it, None if it took too long. `stderr` None: it is written to
        `stdout`.

        Raises:
            SandboxGone: the sandbox has ended. SandboxError: another failure. OSError: its input cannot be read.
        """
        ...

    async def serve(self, main: Command, endpoint: ServerEndpoint) -> SandboxExit:
        """Start this command of the spec as the server of this endpoint, and wait until it or the sandbox has ended.

        Its output goes to the log that the sandbox was started with.

        Raises:
            SandboxError, OSError: it cannot be started.
        """
        ...

    async def endpoint(self, token: str) -> ServerEndpoint:
        """Return the address of its server, started or not, whose own token this is. Raises `SandboxError`."""
        ...


class Sandbox:
    """A sandbox, see `RunningSandbox`, that also runs commands. Every method may be called at any time."""

    def __init__(
        self,
        stop: Callable[[str], Awaitable[None]],
        started: StartedSandbox,
        spec: SandboxSpec,
        log: OutputTail,
        freed: "Callable[[Sandbox], None]",
    ) -> None:
        self._stop = stop
        self._started = started
        self._spec = spec
        self._log = log
        self._began = time.monotonic()
        self._on_freed = freed
        self._token = secrets.token_urlsafe(32)
        loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = loop.create_future()  # done when it begins to end: nothing more is run
        self._ended: asyncio.Future[SandboxExit] = loop.create_future()
        self._serving: asyncio.Task[SandboxExit] | None = None
        self._living: asyncio.Task[None] | None = None
        self._freeing: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        """The name that its backend gives it."""
        return self._started.id

    async def bring_up(self) -> None:
        """Run its setup and wait until its server is ready; call it once, and close it on any failure.

        Raises:
            SandboxNotReady: it did not become ready. Others of `OWN_MEANING`: see each.
        """
        stage = "setup"
        try:
            async with asyncio.timeout(self._left(self._spec.ready_s)):
                for command in self._spec.setup:
                    status = await self._unless_over(self._started.run(command, self._log))
                    if status != 0:
                        raise self._not_ready(_failure_of(command, status), stage)
                stage = "main"
                endpoint = await self.endpoint()
            self._serving = asyncio.create_task(self._started.serve(self._spec.main, endpoint))
            self._serving.add_done_callback(lambda done: done.cancelled() or done.exception())  # retrieved in any case
            stage = "ready"
            healthy = wait_until_healthy(endpoint, self._left(self._spec.ready_s))
            answers = await finished_before(self._serving, healthy)
            if answers is None:
                stage = "main"
                if self._over.done():
                    raise self._gone()
                how = _describe(self._serving.result())
                raise self._not_ready(f"{self._spec.main.argv[0]} ended before it was ready: {how}", stage)
            answers.result()
        except OWN_MEANING:
            raise
        except (SandboxError, OSError) as error:
            why = str(error) or f"it took longer than {self._spec.ready_s:g} s"
            raise self._not_ready(why, stage) from error
        self._living = asyncio.create_task(self._live(self._serving))

    async def endpoint(self) -> ServerEndpoint:
        """Return the address of its server; ask again if that refuses, as tokens expire. Raises `SandboxGone`."""
        return await self._unless_over(self._started.endpoint(self._token))

    async def exec(self, command: Command, *, most_bytes: int = EXEC_BYTES) -> CommandResult:
        """Run a command beside the server, until it ends or is killed after its `timeout_s`.

        `most_bytes`: how much is kept of the end of its stdout, and of its stderr.

        Raises:
            SandboxGone: the sandbox has ended. OSError: the file of its input cannot be read.
        """
        stdout, stderr = OutputTail(most_bytes), OutputTail(most_bytes)
        began = time.monotonic()
        status = await self._unless_over(self._started.run(command, stdout, stderr))
        return CommandResult(status, stdout.bytes(), stderr.bytes(), time.monotonic() - began)

    async def logs(self) -> str:
        """Return the end of what `setup` and `main` wrote, at most `LOG_BYTES`; also after it has ended."""
        return self._log.text()

    async def wait(self) -> SandboxExit:
        """Wait until it has ended."""
        return await asyncio.shield(self._ended)

    async def close(self) -> None:
        """End it and free everything of it. Safe to call twice; a cancellation waits until it is done.

        Raises:
            SandboxError: not all of it could be freed; another call or a sweep tries again.
        """
        if self._freeing is None or (self._freeing.done() and (self._freeing.cancelled() or self._freeing.exception())):
            self._freeing = asyncio.create_task(self._free())
        await await_shielded(self._freeing)

    async def _live(self, serving: "asyncio.Task[SandboxExit]") -> None:
        """Wait until it ends by itself or its lifetime is over; then free it."""
        waited: set[asyncio.Future[Any]] = {serving, self._over}
        lifetime_s = self._spec.limits.lifetime_s
        await asyncio.wait(waited, timeout=self._left(lifetime_s), return_when=asyncio.FIRST_COMPLETED)
        if self._over.done():
            return  # `close` has begun
        if not serving.done():
            self._settle(SandboxExit("timed_out", detail=f"its lifetime of {lifetime_s:g} s was over"))
        elif (error := serving.exception()) is not None:
            self._settle(SandboxExit("lost", detail=str(error)))
        else:
            self._settle(serving.result())
        await end_after_failure(self.close())

    async def _free(self) -> None:
        if not self._over.done():
            self._over.set_result(None)
        try:
            await self._stop(self.id)
        except (SandboxError, OSError) as error:
            self._settle(SandboxExit("lost", detail=f"it could not be ended: {error}"))
            raise SandboxError(f"sandbox {self.id}: {error}; sweep it later") from error
        finally:
            if self._serving is not None:
                self._serving.cancel()
                await asyncio.wait([self._serving])
        self._settle(SandboxExit("terminated", detail="closed"))
        self._on_freed(self)

    def _settle(self, ended: SandboxExit) -> None:
        if not self._over.done():
            self._over.set_result(None)
        if not self._ended.done():
            self._ended.set_result(ended)

    async def _unless_over(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Return what the work returns; as soon as the sandbox ends, cancel it and raise `SandboxGone`."""
        if self._over.done():
            work.close()
            done = None
        else:
            done = await finished_before(self._over, work)
        if done is None:
            raise self._gone()
        return done.result()

    def _gone(self) -> SandboxGone:
        how = f": {_describe(self._ended.result())}" if self._ended.done() else ""
        return SandboxGone(f"sandbox {self.id} has ended{how}")

    def _left(self, of_s: float) -> float:
        return max(0.0, self._began + of_s - time.monotonic())

    def _not_ready(self, why: str, stage: str) -> SandboxNotReady:
        return not_ready(f"sandbox {self.id} did not become ready ({stage}): {why}", stage, self._log)


async def end_after_failure(ending: Awaitable[None]) -> None:
    """End a sandbox whose failure is already reported; log an error of that."""
    try:
        await ending
    except (SandboxError, OSError) as error:
        logger.warning("%s", error)


def not_ready(message: str, stage: str, log: OutputTail) -> SandboxNotReady:
    """Return the error of a failed start, with the end of the log."""
    tail = log.bytes()[-_LOG_TAIL_BYTES:].decode("utf-8", "replace")
    return SandboxNotReady(f"{message}\n{tail}".rstrip(), stage=stage, log_tail=tail)


def _failure_of(command: Command, status: int | None) -> str:
    """Describe a failed setup command. `status`: None if it timed out."""
    how = f"took longer than {command.timeout_s:g} s" if status is None else f"exited with status {status}"
    return f"{command.argv[0]} {how}"


def _describe(ended: SandboxExit) -> str:
    status = "" if ended.status is None else f" with status {ended.status}"
    return f"{ended.kind}{status}" + (f", {ended.detail}" if ended.detail else "")
