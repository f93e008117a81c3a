"""Start program processes with `discover`, retry failed starts, and end processes in the background."""

import asyncio
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from evolverpc_common.exact_values import MAX_SAFE_INTEGER
from protocol import CURRENT_VERSION, DiscoverResult
from protocol.errors import ProgramFailed, RpcError
from protocol.over_stdio import filled_discovery
from rpc_server.program.child_process import Exit
from rpc_server.program.launcher import Launcher
from rpc_server.program.process import ProgramProcess
from rpc_server.program.stdio import UnreadableMessage
from rpc_server.rpc.params import first_error

_DISCOVER_TRIES = 3

_LIMITS = {"max_batch_size": MAX_SAFE_INTEGER, "max_request_bytes": MAX_SAFE_INTEGER}
"""Those of a program that states none: the server has limits of its own."""

_LEAST = '{"program": {"name": "NAME", "seed_candidate": {"COMPONENT": "TEXT"}}}'


class StartTimedOut(ProgramFailed):
    """It did not start in time; a busy machine may be the cause."""


class NoProcessAvailable(ProgramFailed):
    """The system has no process to give; not the program's fault."""


class Worker:
    """A process that runs requests, and its `discover` result.

    `rows`: how many run in it, of those that it has `received`. `isolation`: of what it runs. `spoiled`: what was late
    or is abandoned may still run in it, so that it takes no more. `restore`: adapter state of the process that it
    replaces, for its first request.
    """

    def __init__(self, process: ProgramProcess, discovery: DiscoverResult) -> None:
        self.process = process
        self.discovery = discovery
        self.room = discovery.limits.max_concurrency
        self.rows = 0
        self.received = 0
        self.isolation = 0
        self.spoiled = False
        self.restore: Any = None


async def start_process(launcher: Launcher, timeout_s: float) -> Worker:
    """Start a process and wait for its `discover` result.

    Raises:
        StartTimedOut: it took longer than `timeout_s`.
        NoProcessAvailable: the system has none.
        ProgramFailed: it ended before, or its result does not fit the contract.
    """
    process: ProgramProcess | None = None
    try:
        async with asyncio.timeout(timeout_s):
            for _ in range(_DISCOVER_TRIES):
                process = await launcher.launch()
                message = await _ask_discover(process)
                if message is not None:
                    return Worker(process, _read(message))
        raise ProgramFailed("the process it is forked from keeps ending", stage="start")
    except TimeoutError:
        why = "" if process is None else process.unanswered()
        late = StartTimedOut(f"the program did not start within {timeout_s:g} s{why and f': {why}'}", stage="start")
        raise await _ended(late, process) from None
    except OSError as cause:  # no more descriptors, or processes
        none = NoProcessAvailable(f"cannot start a process: {cause.strerror}", stage="start", retryable=True)
        raise await _ended(none, process) from cause
    except ProgramFailed as error:
        raise await _ended(error, process) from None
    except BaseException:
        if process is not None:
            await process.end(grace_s=0)
        raise


async def _ended(error: ProgramFailed, process: ProgramProcess | None) -> ProgramFailed:
    if process is not None:
        await process.end(grace_s=0)
        error.details.setdefault("log_tail", process.log_tail())
    return error


async def _ask_discover(process: ProgramProcess) -> dict[str, Any] | None:
    """Return the response; None if the process ended through no fault of its own, so that a retry may succeed."""
    answer = await process.ask("discover", {}).answer
    if not isinstance(answer, Exit):
        return answer
    if answer.parent_died:
        return None
    why = process.unanswered()
    raise ProgramFailed(f"the program's process {answer} before it answered{why and f': {why}'}", stage="start")


def _read(message: dict[str, Any]) -> DiscoverResult:
    if "error" in message:
        raise _refusal(message["error"])
    if isinstance(message, UnreadableMessage):
        raise ProgramFailed(f"its answer to discover {message.problem}", stage="discover")
    try:
        discovery = DiscoverResult.model_validate(filled_discovery(message.get("result"), _LIMITS))
    except ValidationError as error:
        reason = f"{first_error(error)}; the least is {_LEAST}"
        raise ProgramFailed(f"its answer to discover: {reason}", stage="discover") from None
    if CURRENT_VERSION not in discovery.protocol_versions:
        known = ", ".join(discovery.protocol_versions)
        raise ProgramFailed(f"the program speaks protocol versions {known}, not {CURRENT_VERSION}", stage="discover")
    program = discovery.program
    if {part.name for part in program.components} != set(program.seed_candidate):
        raise ProgramFailed("its components and its seed_candidate differ", stage="discover")
    if not program.components and "scoring" not in discovery.capabilities:
        raise ProgramFailed("it has no components, and does not score what others answer either", stage="discover")
    idle = {"refs", "adapter_state"} & {*discovery.capabilities}
    if idle and "reflective_datasets" not in discovery.capabilities:
        offered = ", ".join(sorted(idle))
        raise ProgramFailed(f"it offers {offered}, which need `reflective_datasets` over stdio", stage="discover")
    return discovery


def _refusal(given: Any) -> ProgramFailed:
    if isinstance(given, dict):
        error = RpcError.from_wire(given)
        if isinstance(error, ProgramFailed):
            return error
        return ProgramFailed(f"it refused discover: {error.message}", stage="discover", program_error=error.to_wire())
    return ProgramFailed("it refused discover", stage="discover")


TRIES = 2
"""Failed starts in a row after which a program counts as unavailable."""

_GRACE_S = 1.0
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0


class ProcessFactory:
    """Starts processes on request. After a failure it pauses, longer each time, before it calls `on_retry`."""

    def __init__(
        self,
        launcher: Launcher,
        *,
        start_timeout_s: float,
        on_started: Callable[[Worker], None],
        on_failed: Callable[[ProgramFailed], None],
        on_retry: Callable[[], None],
    ) -> None:
        self._launcher = launcher
        self._start_timeout_s = start_timeout_s
        self._on_started = on_started
        self._on_failed = on_failed
        self._on_retry = on_retry
        self._loop = asyncio.get_running_loop()
        self._starting: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._closed = False
        self.failures = 0
        """Failed starts since the last success."""
        self.last_failure: ProgramFailed | None = None
        """The reason of the last failure."""

    def ensure_starting(self, count: int) -> None:
        """Have `count` processes starting, including earlier ones; none during a pause."""
        if self._closed or self._pause is not None:
            return
        for _ in range(count - len(self._starting)):
            start = self._loop.create_task(self._start())
            self._starting.add(start)
            start.add_done_callback(self._starting.discard)

    async def _start(self) -> None:
        failures = self.failures
        try:
            started = await start_process(self._launcher, self._start_timeout_s)
        except ProgramFailed as error:
            # Concurrent starts that fail together count once.
            if self.failures <= failures:
                self.failed(error)
            return
        self.failures = 0
        self.last_failure = None
        task = asyncio.current_task()
        if task is not None:
            self._starting.discard(task)  # it has started: `on_started` may request more
        self._on_started(started)

    def failed(self, error: ProgramFailed) -> None:
        """Count a failure and pause."""
        self.failures += 1
        error.retryable = True  # the program ran before, and is tried again
        self.last_failure = error
        self._on_failed(error)
        if self._pause is None and not self._closed:
            pause = min(_FIRST_PAUSE_S * 2 ** (self.failures - 1), _LONGEST_PAUSE_S)
            self._pause = self._loop.call_later(pause, self._resume)

    def _resume(self) -> None:
        self._pause = None
        self._on_retry()

    def end(self, process: ProgramProcess, *, graceful: bool) -> None:
        """End a process in the background: close its stdin first if `graceful`, else kill it."""
        if not graceful:
            process.kill()
        task = self._loop.create_task(process.end(grace_s=_GRACE_S if graceful else 0))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """Stop starting, and wait until all have ended."""
        self._closed = True
        if self._pause is not None:
            self._pause.cancel()
        for start in tuple(self._starting):
            start.cancel()
        await asyncio.gather(*self._starting, *self._ending, return_exceptions=True)
        await self._launcher.close()
