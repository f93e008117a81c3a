"""Start, use, find and end sandboxes of any backend: everything that does not depend on which one makes them."""

import asyncio
import logging
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self, TypeVar
from urllib.parse import unquote, urlsplit

import aiohttp

from evolverpc_common.output_tail import OutputTail
from evolverpc_common.shielded import await_shielded, finished_before
from sandbox_runtime.api.sandbox import (
    EXEC_BYTES,
    LOG_BYTES,
    CommandResult,
    EgressNotEnforced,
    EnvironmentMissing,
    RuntimeThrottled,
    RuntimeUnavailable,
    SandboxError,
    SandboxExit,
    SandboxGone,
    SandboxInfo,
    SandboxNotReady,
    ServerEndpoint,
)
from sandbox_runtime.api.spec import Command, PreparedEnvironment, Recipe, SandboxSpec

ATTEMPT_S = 15.0
"""Seconds that one request may wait for its answer, mostly in the backlog of a server that is still starting."""

FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 0.5
_T = TypeVar("_T")


async def wait_until_healthy(endpoint: ServerEndpoint, within_s: float) -> None:
    """Return once the server answers `GET /health` with 200.

    A request to a listening socket waits until its server accepts it; one that fails is repeated.

    Raises:
        TimeoutError: it did not within `within_s` seconds; the message has the last failure.
    """
    fault = "no answer"
    try:
        async with asyncio.timeout(within_s):
            connector, url = reached_by(endpoint.url)
            headers = {"Authorization": f"Bearer {endpoint.proxy_token}"} if endpoint.proxy_token else {}
            limit = aiohttp.ClientTimeout(total=ATTEMPT_S)
            async with aiohttp.ClientSession(connector=connector, headers=headers, timeout=limit) as session:
                pause = FIRST_PAUSE_S
                while True:
                    try:
                        async with session.get(f"{url}/health", allow_redirects=False) as answer:
                            if answer.status == 200:
                                return
                            fault = f"/health answered {answer.status}"
                    except aiohttp.ClientError as error:
                        fault = f"{type(error).__name__}: {error}"
                    except TimeoutError:
                        fault = f"no answer to /health in {ATTEMPT_S:g} s"
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, LONGEST_PAUSE_S)
    except TimeoutError:
        raise TimeoutError(f"not ready within {within_s:g} s: {fault}") from None


def reached_by(url: str) -> tuple[aiohttp.BaseConnector, str]:
    """Return a connector for an endpoint's `url`, and the URL to request, without a path."""
    parts = urlsplit(url)
    if parts.scheme == "http+unix":
        return aiohttp.UnixConnector(unquote(parts.netloc)), "http://localhost"
    return aiohttp.TCPConnector(), f"{parts.scheme}://{parts.netloc}"


OWN_MEANING = (EgressNotEnforced, EnvironmentMissing, RuntimeThrottled, RuntimeUnavailable, SandboxNotReady)
"""Errors that `Runtime.start` raises as they are; any other means that the sandbox did not become ready."""

_LOG_TAIL_BYTES = 4096
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

    def __init__(self, runtime: "Runtime", started: StartedSandbox, spec: SandboxSpec, log: OutputTail) -> None:
        self._runtime = runtime
        self._started = started
        self._spec = spec
        self._log = log
        self._began = time.monotonic()
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
                    if status is None:
                        raise self._not_ready(f"{command.argv[0]} took longer than {command.timeout_s:g} s", stage)
                    if status != 0:
                        raise self._not_ready(f"{command.argv[0]} exited with status {status}", stage)
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
                how = self._serving.result()
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
            await self._runtime.stop(self.id)
        except (SandboxError, OSError) as error:
            self._settle(SandboxExit("lost", detail=f"it could not be ended: {error}"))
            raise SandboxError(f"sandbox {self.id}: {error}; sweep it later") from error
        finally:
            if self._serving is not None:
                self._serving.cancel()
                await asyncio.wait([self._serving])
        self._settle(SandboxExit("terminated", detail="closed"))
        self._runtime.forget(self)

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
        how = f": {self._ended.result()}" if self._ended.done() else ""
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


_AT_ONCE = 20
"""How many sandboxes are ended at the same time."""


class Runtime(ABC):
    """Starts sandboxes of one kind. Use it in an `async with` block, which ends those that were not closed.

    A backend implements `open`, `prepare`, `begin`, `stop` and `found`.
    """

    name: ClassVar[str]
    """`process`, `bubblewrap`, `docker` or `modal`."""

    def __init__(self) -> None:
        self._sandboxes: dict[str, Sandbox] = {}
        self._entered = False

    @abstractmethod
    async def open(self) -> None:
        """Examine whether it can be used, before `prepare` and `begin`. Raises `RuntimeUnavailable`."""

    @abstractmethod
    async def prepare(
        self, recipe: Recipe, *, on_progress: Callable[[str], None], rebuild: bool = False
    ) -> PreparedEnvironment:
        """Make the recipe's environment ready, at most once; `rebuild` makes it again in any case.

        `on_progress` is called with the progress of long steps. Raises `SandboxError`.
        """

    @abstractmethod
    async def begin(self, spec: SandboxSpec, log: OutputTail) -> StartedSandbox:
        """Start a sandbox in which nothing runs yet. Nothing of it is left on any failure or cancellation.

        `log`: gets what its server prints, and what is printed while it is made.

        Raises:
            EgressNotEnforced, EnvironmentMissing, RuntimeThrottled, RuntimeUnavailable: see each.
            SandboxError, OSError: it cannot be made.
            ValueError: a label is not as `SandboxSpec.labels` requires.
        """

    @abstractmethod
    async def stop(self, id_: str) -> None:
        """End everything of a sandbox and free it, also one of another process, or one that has ended.

        A cancellation waits until it is done.

        Raises:
            SandboxError, OSError: something of it is left; call it again to retry.
        """

    @abstractmethod
    async def found(self, labels: Mapping[str, str] | None = None) -> Sequence[SandboxInfo]:
        """Return every sandbox of this kind that has these labels, of any process."""

    async def __aenter__(self) -> Self:
        """Open it. Raises `RuntimeUnavailable`."""
        await self.open()
        self._entered = True
        return self

    async def __aexit__(self, *_: object) -> None:
        """End every sandbox that was started and not closed.

        Raises:
            SandboxError: after all were tried: some could not be freed; how many, and the first error.
        """
        self._entered = False
        count = len(self._sandboxes)
        if faults := await await_shielded(self._end(list(self._sandboxes))):
            raise SandboxError(f"{len(faults)} of {count} sandboxes could not be freed: {faults[0]}")

    async def start(self, spec: SandboxSpec) -> Sandbox:
        """Start a sandbox and wait until it is ready. Nothing of it is left on any failure or cancellation.

        Raises:
            EgressNotEnforced, EnvironmentMissing, SandboxNotReady, RuntimeThrottled, RuntimeUnavailable: see each.
            ValueError: a label is not as `SandboxSpec.labels` requires.
        """
        self._check_entered()
        log = OutputTail(LOG_BYTES)
        try:
            async with asyncio.timeout(spec.ready_s):
                started = await self.begin(spec, log)
        except OWN_MEANING:
            raise
        except (SandboxError, OSError) as error:
            await asyncio.sleep(0)  # the last output may not be read yet
            why = str(error) or f"it took longer than {spec.ready_s:g} s"
            raise not_ready(f"no sandbox can be made: {why}", "create", log) from error
        sandbox = Sandbox(self, started, spec, log)
        self._sandboxes[sandbox.id] = sandbox
        try:
            self._check_entered()  # the block may have been left meanwhile
            await sandbox.bring_up()
        except BaseException:
            await end_after_failure(sandbox.close())
            raise
        return sandbox

    async def sweep(self, labels: Mapping[str, str] | None = None, *, orphans_only: bool = True) -> list[str]:
        """End those among `found` whose owner has ended, or all of them; return their ids.

        Raises:
            SandboxError: after all were tried: some could not be ended; which, and why.
        """
        found = await self.found(labels)
        ids = [one.id for one in found if not orphans_only or (one.orphan and one.id not in self._sandboxes)]
        if faults := await self._end(ids):
            raise SandboxError(f"swept {len(ids) - len(faults)} sandboxes, but not all: {'; '.join(faults)}")
        return ids

    async def _end(self, ids: Sequence[str]) -> list[str]:
        """End sandboxes in parallel, each completely; return which could not be ended, and why."""
        places_left = asyncio.Semaphore(_AT_ONCE)

        async def end(id_: str) -> str | None:
            own = self._sandboxes.get(id_)
            async with places_left:
                try:
                    await (self.stop(id_) if own is None else own.close())
                except (SandboxError, OSError) as error:
                    return f"{id_}: {error}"
            return None

        return list(filter(None, await asyncio.gather(*(end(id_) for id_ in ids))))

    def forget(self, sandbox: Sandbox) -> None:
        """Take note that a sandbox was freed."""
        self._sandboxes.pop(sandbox.id, None)

    def _check_entered(self) -> None:
        if not self._entered:
            raise RuntimeUnavailable(f"the {self.name} backend starts sandboxes within its `async with` block only")
