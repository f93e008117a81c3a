"""Schedule requests on program processes: tasks, worker slots, and the order in which tasks run."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

from rpc_server.program.process import ProcessHeartbeat
from rpc_server.program.process_factory import StartedProcess
from rpc_server.program.process_requests import ProcessRequest


class WorkItem:
    """One process request on its way through the pool.

    `isolated`: it needs a process to itself, as it may have killed or blocked one. `exclusive`: it must run while
    nothing else does, as it may have killed all processes. `died`: a process died under it. `late`: past its deadline.
    `abandoned`: no call waits for it. `unshared`: its process has run nothing else. `sent`, `log_mark`, `blocked_mark`:
    time, log position and `blocked_s` at sending.
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
    """A process and its work items.

    `abandoned`: items that no call waits for, not answered yet. `used`: it has received a request. `isolated`: its item
    needs it alone. `restore`: adapter state of the process it replaces, for its first request. `heartbeat`: None if
    responsiveness cannot be measured.
    """

    def __init__(self, started: StartedProcess, restore: Any, heartbeat: ProcessHeartbeat | None) -> None:
        self.process = started.process
        self.heartbeat = heartbeat
        self.room = started.discovery.limits.max_concurrency
        self.running: set[WorkItem] = set()
        self.abandoned: set[WorkItem] = set()
        self.used = False
        self.isolated = False
        self.restore = restore


class Scheduler:
    """One queue per call, served round-robin, so that a short call need not wait for a long one.

    Requeued items come first. Suspects wait separately: `isolated` ones for a process of their own, and `exclusive`
    ones for an idle pool.
    """

    def __init__(self) -> None:
        self._lines: deque[deque[WorkItem]] = deque()
        self._requeued: deque[WorkItem] = deque()
        self._isolated: deque[WorkItem] = deque()
        self._exclusive: deque[WorkItem] = deque()

    @property
    def suspects(self) -> int:
        """The number of isolated and exclusive items that wait."""
        return len(self._isolated) + len(self._exclusive)

    @property
    def any_isolated(self) -> bool:
        """Whether an isolated item waits."""
        return bool(self._isolated)

    @property
    def any_exclusive(self) -> bool:
        """Whether an exclusive item waits."""
        return bool(self._exclusive)

    def add(self, items: Sequence[WorkItem]) -> None:
        """Queue the items of a call."""
        self._lines.append(deque(items))

    def requeue(self, item: WorkItem) -> None:
        """Queue an item first that must run again through no fault of its own."""
        (self._isolated if item.isolated else self._requeued).appendleft(item)

    def add_suspect(self, item: WorkItem) -> None:
        """Queue an isolated or exclusive item."""
        (self._exclusive if item.exclusive else self._isolated).append(item)

    def next(self) -> WorkItem | None:
        """Return the next item for any process; None if there is none."""
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
        """Return the next isolated item."""
        return self._isolated.popleft()

    def next_exclusive(self) -> WorkItem:
        """Return the next exclusive item."""
        return self._exclusive.popleft()

    def drop_abandoned(self) -> None:
        """Drop abandoned suspects; other abandoned items are skipped at their turn."""
        self._isolated = deque(item for item in self._isolated if not item.abandoned)
        self._exclusive = deque(item for item in self._exclusive if not item.abandoned)

    def waiting(self) -> list[WorkItem]:
        """Return all items that wait."""
        return [*self._requeued, *self._isolated, *self._exclusive, *(item for line in self._lines for item in line)]
