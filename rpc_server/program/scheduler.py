"""Which request runs in which process: starts, turns of calls, requests that run alone, and the number of processes."""

import asyncio
import logging
from collections import deque
from copy import copy
from typing import Any

from pydantic import ValidationError

from evolverpc_common.exact_values import MAX_SAFE_INTEGER
from protocol import CURRENT_VERSION, DiscoverResult
from protocol.errors import ProgramFailed
from protocol.over_stdio import filled_discovery
from rpc_server.program.checked_answers import error_of
from rpc_server.program.child_process import Exit
from rpc_server.program.launcher import Launcher
from rpc_server.program.process import ProgramProcess
from rpc_server.program.stdio import UnreadableMessage
from rpc_server.wire import first_error

_LIMITS = {"max_batch_size": MAX_SAFE_INTEGER, "max_request_bytes": MAX_SAFE_INTEGER}
"""Those of a program that states none: the server has limits of its own."""

_LEAST = '{"program": {"name": "NAME", "seed_candidate": {"COMPONENT": "TEXT"}}}'


class StartTimedOut(ProgramFailed):
    """It did not start in time; a busy machine may be the cause."""


class NoProcessAvailable(ProgramFailed):
    """The system has no process to give; not the program's fault."""


class Worker:
    """A process that runs requests, and its `discover` result.

    `rows`: how many run in it, of those that it has `received`. `alone`: what it runs is to have no neighbours.
    `spoiled`: what was late or is abandoned may still run in it, so that it takes no more. `restore`: adapter state of
    the process that it replaces, for its first request.
    """

    def __init__(self, process: ProgramProcess, discovery: DiscoverResult) -> None:
        self.process = process
        self.discovery = discovery
        self.room = discovery.limits.max_concurrency
        self.rows = 0
        self.received = 0
        self.alone = False
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
            process = await launcher.launch()
            answer = await process.ask("discover", {}).answer
            if isinstance(answer, Exit) and answer.parent_died:  # by what ran beside it: the next one has a new parent
                await process.end(grace_s=0)
                process = await launcher.launch()
                answer = await process.ask("discover", {}).answer
            if isinstance(answer, Exit):
                why = process.unanswered()
                how = f"the program's process {answer} before it answered{why and f': {why}'}"
                raise ProgramFailed(how, stage="start")
            return Worker(process, _read(answer))
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


def _read(message: dict[str, Any]) -> DiscoverResult:
    if "error" in message:
        error = error_of(message["error"])
        if isinstance(error, ProgramFailed):
            error.details.setdefault("stage", "discover")
            raise error
        reason = f"it refused discover: {error.message}"
        raise ProgramFailed(reason, stage="discover", program_error=error.to_wire())
    if isinstance(message, UnreadableMessage):
        raise ProgramFailed(f"its answer to discover {message.problem}", stage="discover")
    given = filled_discovery(message.get("result"), _LIMITS)
    try:
        discovery = DiscoverResult.model_validate(given)
    except ValidationError as error:
        reason = f"{first_error(error, given)}; the least is {_LEAST}"
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


_EXTRA_PROCESSES = 8  # for what runs alone, and in place of spoiled ones
_TRIES = 2
"""Failed starts in a row after which a program counts as unavailable."""

_GRACE_S = 1.0
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0

Place = asyncio.Future[Worker]
Turns = deque[Place]
"""The places that the requests of one call wait for. Calls are served in turn, so that a short one need not wait for a
long one."""

logger = logging.getLogger(__name__)


class Scheduler:
    """The processes of a program, and the requests that wait for a place in one.

    What runs alone comes first, in an unused process; if a single process is kept for its memory, in that one once it
    is empty. A spoiled process takes no more requests, and ends when it is empty. After a failed start there is a
    pause, longer each time.
    """

    def __init__(
        self,
        launcher: Launcher,
        first: Worker,
        *,
        size: int,
        at_rest: int,
        most_requests: int,
        is_single: bool,
        start_timeout_s: float,
    ) -> None:
        """Start the other processes.

        `size`: processes at most, besides the extra ones; `at_rest`: those that are started before requests wait.
        """
        self._launcher = launcher
        self._size = size
        self._at_rest = at_rest
        self._most_requests = most_requests
        self._is_single = is_single
        self._start_timeout_s = start_timeout_s
        self._loop = asyncio.get_running_loop()
        self._workers: list[Worker] = []
        self._calls: deque[Turns] = deque()
        self._alone: deque[Place] = deque()
        self._waiting = 0
        self._running = 0
        self._starting: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._failures = 0
        self._last_failure: ProgramFailed | None = None
        self.closing: ProgramFailed | None = None
        """The error of requests from `close` on."""
        self.adapter_state: Any = None
        """That of the last response, for the processes that are started next."""
        self._add(first)
        self._fill()

    @property
    def unavailable(self) -> ProgramFailed | None:
        """Why no process is available, after two failed starts in a row, until a process starts; or `closing`."""
        if self.closing is not None:
            return self.closing
        return None if self._workers or self._failures < _TRIES else self._last_failure

    async def take(self, turns: Turns | None) -> Worker:
        """Wait for a place in a process; `leave` frees it.

        `turns`: of the call, the same for all of its requests; None for a request that runs alone. Raises
        `ProgramFailed`: no process is available.
        """
        if (unavailable := self.unavailable) is not None:
            raise copy(unavailable)
        place: Place = self._loop.create_future()
        if turns is None:
            self._alone.append(place)
        else:
            if not turns:
                self._calls.append(turns)
            turns.append(place)
            self._waiting += 1
        self._dispatch()
        if not place.done() and self._waiting <= self._size + _EXTRA_PROCESSES:  # more of them need no more processes
            self._fill()
        try:
            return await place
        except asyncio.CancelledError:
            if not place.cancelled() and place.exception() is None:
                self.leave(place.result())
            raise

    def leave(self, worker: Worker) -> None:
        """Free a place. The process ends if it is empty and not fit for more, or one too many."""
        worker.rows -= 1
        self._running -= 1
        if not worker.rows:
            is_over = worker.spoiled or (worker.alone and not self._is_single)
            if is_over or len(self._workers) > self._size + self._extra():
                self.end(worker, graceful=not worker.spoiled)
            worker.alone = False
        if worker.spoiled or worker not in self._workers:
            self._fill()
        self._dispatch()

    def end(self, worker: Worker, *, graceful: bool) -> None:
        """End a process, unless it has ended: close its stdin first if `graceful`, else kill it.

        What still runs in it gets its exit at once.
        """
        if worker not in self._workers:
            return
        self._workers.remove(worker)
        worker.process.give_up()
        if not graceful:
            worker.process.kill()
        task = self._loop.create_task(worker.process.end(grace_s=_GRACE_S if graceful else 0))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """Stop starting, end all processes, and fail what waits."""
        self.closing = ProgramFailed("the server is shutting down", stage="close", retryable=True)
        self._refuse_all(self.closing)
        if self._pause is not None:
            self._pause.cancel()
        for worker in tuple(self._workers):
            self.end(worker, graceful=not worker.rows)
        for start in self._starting:
            start.cancel()
        await asyncio.gather(*self._starting, *self._ending, return_exceptions=True)
        await self._launcher.close()

    def _refuse_all(self, error: ProgramFailed) -> None:
        for places in (self._alone, *self._calls):
            for place in places:
                if not place.done():
                    place.set_exception(copy(error))  # a copy for each, as raising adds to its traceback
            places.clear()
        self._calls.clear()
        self._waiting = 0

    def _dispatch(self) -> None:
        while self._running < self._most_requests and (found := self._next()) is not None:
            place, worker = found
            worker.rows += 1
            worker.received += 1
            self._running += 1
            place.set_result(worker)

    def _next(self) -> tuple[Place, Worker] | None:
        """Return the next request that a process has room for."""
        while self._alone and self._alone[0].done():
            self._alone.popleft()  # cancelled
        if not (self._alone or self._waiting):
            return None
        fit = [worker for worker in self._workers if worker.process.alive and not worker.spoiled]
        if self._alone:
            for worker in fit:
                if not worker.rows and (self._is_single or not worker.received):
                    worker.alone = True
                    return self._alone.popleft(), worker
            if self._is_single:
                return None  # what runs must end first
        with_room = [worker for worker in fit if not worker.alone and worker.rows < worker.room]
        if not with_room or (place := self._next_in_turn()) is None:
            return None
        return place, min(with_room, key=lambda worker: worker.rows)

    def _next_in_turn(self) -> Place | None:
        while self._calls:
            turns = self._calls.popleft()
            place = turns.popleft()
            if turns:
                self._calls.append(turns)
            self._waiting -= 1
            if not place.done():
                return place
        return None

    # -- how many ----------------------------------------------------------------------------------------------------

    def _extra(self) -> int:
        if self._is_single:
            return 0
        return min(len(self._alone) + sum(one.alone or one.spoiled for one in self._workers), _EXTRA_PROCESSES)

    def _fill(self) -> None:
        """Have as many processes starting as are wanted, including earlier ones; none during a pause."""
        if self.closing is not None or self._pause is not None:
            return
        wanted = min(self._size, max(self._at_rest, self._running + self._waiting))
        usual = sum(one.received > 0 and not one.alone and not one.spoiled for one in self._workers)
        count = max(wanted, usual) + self._extra() - len(self._workers)
        for _ in range(count - len(self._starting)):
            start = self._loop.create_task(self._start())
            self._starting.add(start)
            start.add_done_callback(self._starting.discard)

    async def _start(self) -> None:
        failures = self._failures
        try:
            worker = await start_process(self._launcher, self._start_timeout_s)
        except ProgramFailed as error:
            if self._failures <= failures:  # concurrent starts that fail together count once
                self._failed(error)
            return
        self._failures = 0
        if (task := asyncio.current_task()) is not None:
            self._starting.discard(task)
        self._add(worker)
        self._dispatch()

    def _failed(self, error: ProgramFailed) -> None:
        """Count a failed start, and pause."""
        error.retryable = True  # the program ran before, and is tried again
        self._failures += 1
        self._last_failure = error
        if self.unavailable is not None:
            self._refuse_all(error)
        if self._pause is None and self.closing is None:
            pause = min(_FIRST_PAUSE_S * 2 ** (self._failures - 1), _LONGEST_PAUSE_S)
            self._pause = self._loop.call_later(pause, self._resume)

    def _resume(self) -> None:
        self._pause = None
        self._fill()

    def _add(self, worker: Worker) -> None:
        worker.restore = self.adapter_state
        self._workers.append(worker)
        worker.process.exited.add_done_callback(lambda exited: self._ended(worker, exited.result()))

    def _ended(self, worker: Worker, how: Exit) -> None:
        if worker not in self._workers:
            return  # its end was requested
        self._workers.remove(worker)
        if worker.rows:
            logger.warning("the program's process %s: its requests run again (%d)", how, worker.rows)
        if not worker.received and not how.parent_died:
            # It starts but ends at once: pause before the next start.
            self._failed(ProgramFailed(f"the program's process {how} before its first request", stage="start"))
        self._fill()
        self._dispatch()
