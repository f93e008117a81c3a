"""Which request runs in which process: rooms, turns of calls, requests that must run alone, and how many processes."""

import asyncio
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from protocol.errors import ProgramFailed
from rpc_server.program.child_process import Exit
from rpc_server.program.launcher import Launcher
from rpc_server.program.process_factory import TRIES, ProcessFactory, Worker

_EXTRA_PROCESSES = 8  # for what runs alone, and in place of spoiled ones


class Isolation(IntEnum):
    """What may run beside a request: anything, nothing in its process, or nothing in the pool."""

    NONE = 0
    PROCESS = 1
    POOL = 2


Place = asyncio.Future[Worker]
Turns = deque[Place]
"""The places that the requests of one call wait for. Calls are served in turn, so that a short one need not wait for a
long one."""


class Scheduler:
    """The processes of a program, and the requests that wait for a place in one.

    What runs again comes first, in an unused process; if a single process is kept for its memory, in that one once it
    is empty. A spoiled process takes no more requests, and ends when it is empty.
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
        on_unavailable: Callable[[ProgramFailed], None],
    ) -> None:
        """Start the other processes.

        `size`: processes at most, besides the extra ones; `at_rest`: those that are started before requests wait.
        `on_unavailable`: gets the reason once no process is available, and after each failed start from then on.
        """
        self._size = size
        self._at_rest = at_rest
        self._most_requests = most_requests
        self._is_single = is_single
        self._on_unavailable = on_unavailable
        self._loop = asyncio.get_running_loop()
        self._workers: list[Worker] = []
        self._lines: dict[Isolation, deque[Turns]] = {each: deque() for each in reversed(Isolation)}
        self._waiting = [0 for _ in Isolation]
        self._running = 0
        self._factory = ProcessFactory(
            launcher,
            start_timeout_s=start_timeout_s,
            on_started=self._started,
            on_failed=self._start_failed,
            on_retry=self._fill,
        )
        self.adapter_state: Any = None
        """That of the last response, for the processes that are started next."""
        self._add(first)
        self._fill()

    @property
    def unavailable(self) -> ProgramFailed | None:
        """Why no process is available, after two failed starts in a row, until a process starts."""
        return None if self._workers or self._factory.failures < TRIES else self._factory.last_failure

    async def take(self, turns: Turns, isolation: Isolation) -> Worker:
        """Wait for a place in a process. `turns`: of the call, the same for all of its requests; see `leave`."""
        place: Place = self._loop.create_future()
        line: Turns = deque() if isolation else turns
        if not line:
            self._lines[isolation].append(line)
        line.append(place)
        self._waiting[isolation] += 1
        self._dispatch()
        if place.done():
            return place.result()
        if self._waiting[isolation] <= self._size + _EXTRA_PROCESSES:  # more of them need no more processes
            self._fill()
        try:
            return await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.leave(place.result())
            else:
                self._waiting[isolation] -= 1
            raise

    def leave(self, worker: Worker) -> None:
        """Free a place. The process ends if it is empty and not fit for more, or one too many."""
        worker.rows -= 1
        self._running -= 1
        if not worker.rows:
            alone = worker.isolation and not self._is_single
            if worker.spoiled or alone or len(self._workers) > self._size + self._extra():
                self.end(worker, graceful=not worker.spoiled)
            worker.isolation = Isolation.NONE
        if worker.spoiled or worker not in self._workers:
            self._fill()
        self._dispatch()

    def end(self, worker: Worker, *, graceful: bool) -> None:
        """End a process, unless it has ended. What still runs in it gets its exit at once."""
        if worker not in self._workers:
            return
        self._workers.remove(worker)
        worker.process.give_up()
        self._factory.end(worker.process, graceful=graceful)

    async def close(self) -> None:
        """End all processes."""
        for worker in tuple(self._workers):
            self.end(worker, graceful=not worker.rows)
        await self._factory.close()

    def _dispatch(self) -> None:
        while any(self._waiting) and self._running < self._most_requests and (found := self._next()) is not None:
            place, worker, isolation = found
            worker.rows += 1
            worker.received += 1
            worker.isolation = isolation
            self._running += 1
            self._waiting[isolation] -= 1
            place.set_result(worker)

    def _next(self) -> tuple[Place, Worker, Isolation] | None:
        """Return the next request that a process has room for."""
        if self._running == 1 and any(worker.isolation is Isolation.POOL for worker in self._workers):
            return None
        for isolation, lines in self._lines.items():
            if not self._waiting[isolation]:
                continue
            worker = self._worker_for(isolation)
            if worker is not None:
                if (place := _next_of(lines)) is not None:
                    return place, worker, isolation
                continue  # those that wait were cancelled just now
            if isolation and (isolation is Isolation.POOL or self._is_single):
                return None  # what runs must end first
        return None

    def _worker_for(self, isolation: Isolation) -> Worker | None:
        if isolation is Isolation.POOL and self._running:
            return None
        fit = [worker for worker in self._workers if worker.process.alive and self._fits(worker, isolation)]
        return min(fit, key=lambda worker: worker.rows, default=None)

    def _fits(self, worker: Worker, isolation: Isolation) -> bool:
        if worker.spoiled:
            return False
        if isolation:
            return not worker.rows and (self._is_single or not worker.received)
        if worker.received:
            return not worker.isolation and worker.rows < worker.room
        # Processes that were started for what runs alone are left for it.
        return self._usual() < self._size

    # -- how many ----------------------------------------------------------------------------------------------------

    def _usual(self) -> int:
        return sum(one.received > 0 and not one.isolation and not one.spoiled for one in self._workers)

    def _extra(self) -> int:
        if self._is_single:
            return 0
        again = self._waiting[Isolation.PROCESS] + self._waiting[Isolation.POOL]
        return min(again + sum(bool(one.isolation) or one.spoiled for one in self._workers), _EXTRA_PROCESSES)

    def _fill(self) -> None:
        wanted = min(self._size, max(self._at_rest, self._running + self._waiting[Isolation.NONE]))
        self._factory.ensure_starting(max(wanted, self._usual()) + self._extra() - len(self._workers))

    def _started(self, worker: Worker) -> None:
        self._add(worker)
        self._dispatch()

    def _add(self, worker: Worker) -> None:
        worker.restore = self.adapter_state
        self._workers.append(worker)
        worker.process.exited.add_done_callback(lambda exited: self._ended(worker, exited.result()))

    def _ended(self, worker: Worker, how: Exit) -> None:
        if worker not in self._workers:
            return  # its end was requested
        self._workers.remove(worker)
        if not worker.received and not how.parent_died:
            # It starts but ends at once: pause before the next start.
            self._factory.failed(ProgramFailed(f"the program's process {how} before its first request", stage="start"))
        self._fill()
        self._dispatch()

    def _start_failed(self, error: ProgramFailed) -> None:
        if self.unavailable is not None:
            self._on_unavailable(error)


def _next_of(lines: deque[Turns]) -> Place | None:
    """Take the next place from the lines in turn; None if none waits."""
    while lines:
        line = lines.popleft()
        place = line.popleft()
        if line:
            lines.append(line)
        if not place.done():
            return place
    return None
