"""Schedule requests on program processes: tasks, worker slots, and the order in which tasks run."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

from rpc_server.program.process import Heartbeat
from rpc_server.program.process_factory import StartedProcess
from rpc_server.program.work import ProcessRequest


class WorkItem:
    """One piece of work on its way through the pool.

    `isolated`: it must have a process to itself, because it is suspected of having ended or blocked one. `exclusive`: it must
    run while nothing else does, because it is suspected of having ended all processes. `died`: a process ended under it
    before. `late`: past its deadline. `abandoned`: its call needs no answer any more. `unshared`: its process has run
    nothing else. `sent`, `log_mark`, `blocked_mark`: the time, the state of the log and the heartbeat's `blocked_s` when it
    was sent.
    """

    __slots__ = (
        "abandoned",
        "blocked_mark",
        "call_id",
        "died",
        "exclusive",
        "isolated",
        "late",
        "log_mark",
        "sent",
        "slot",
        "timer",
        "unshared",
        "work",
    )

    def __init__(self, work: ProcessRequest, call_id: str) -> None:
        self.work = work
        self.call_id = call_id
        self.isolated = False
        self.exclusive = False
        self.died = False
        self.late = False
        self.abandoned = False
        self.unshared = False
        self.slot: WorkerSlot | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.sent = 0.0
        self.log_mark = 0
        self.blocked_mark = 0.0


class WorkerSlot:
    """A process and what runs in it.

    `abandoned` are given up, but not answered yet. `used`: it has been given something. `isolated`: what runs in it must
    be alone. `restore`: state of the process it replaces, to be sent along with its first request. `heartbeat`:
    measures whether it answers while it works; None where that cannot be measured.
    """

    def __init__(self, started: StartedProcess, restore: Any, heartbeat: Heartbeat | None) -> None:
        self.process = started.process
        self.heartbeat = heartbeat
        self.room = started.discovery.limits.max_concurrency
        self.running: set[WorkItem] = set()
        self.abandoned: set[WorkItem] = set()
        self.used = False
        self.isolated = False
        self.restore = restore


class Scheduler:
    """Calls wait in a line each, and the lines take turns, so that a short call need not wait for a long one.

    Before them comes what must run again. Beside them wait the suspects: those that must have a process to themselves
    (`isolated`), and those that must run while nothing else does (`exclusive`).
    """

    def __init__(self) -> None:
        self._lines: deque[deque[WorkItem]] = deque()
        self._requeued: deque[WorkItem] = deque()
        self._isolated: deque[WorkItem] = deque()
        self._exclusive: deque[WorkItem] = deque()

    @property
    def suspects(self) -> int:
        """How many wait to run alone or apart."""
        return len(self._isolated) + len(self._exclusive)

    @property
    def any_isolated(self) -> bool:
        """Whether one waits to have a process to itself."""
        return bool(self._isolated)

    @property
    def any_exclusive(self) -> bool:
        """Whether one waits to run while nothing else does."""
        return bool(self._exclusive)

    def add(self, items: Sequence[WorkItem]) -> None:
        """A call's pieces of work, at the end."""
        self._lines.append(deque(items))

    def requeue(self, item: WorkItem) -> None:
        """Work that ran already and must once more, through no fault of its own: the first in its place."""
        (self._isolated if item.isolated else self._requeued).appendleft(item)

    def add_suspect(self, item: WorkItem) -> None:
        """Work that is `isolated`, or `exclusive`, behind its like."""
        (self._exclusive if item.exclusive else self._isolated).append(item)

    def next(self) -> WorkItem | None:
        """The next that any process may have; None when there is none."""
        while self._requeued:
            item = self._requeued.popleft()
            if not item.abandoned:
                return item
        while self._lines:
            line = self._lines.popleft()
            item = line.popleft()
            if line:
                self._lines.append(line)
            if not item.abandoned:
                return item
        return None

    def next_isolated(self) -> WorkItem:
        """The next of those that `any_isolated` is about."""
        return self._isolated.popleft()

    def next_exclusive(self) -> WorkItem:
        """The next of those that `any_exclusive` is about."""
        return self._exclusive.popleft()

    def drop_abandoned(self) -> None:
        """Let go of suspects that nobody waits for; others are passed over when their turn comes."""
        self._isolated = deque(item for item in self._isolated if not item.abandoned)
        self._exclusive = deque(item for item in self._exclusive if not item.abandoned)

    def waiting(self) -> list[WorkItem]:
        """All of them."""
        return [*self._requeued, *self._isolated, *self._exclusive, *(item for line in self._lines for item in line)]
