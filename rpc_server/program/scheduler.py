"""Schedule requests on program processes: work items, worker slots with heartbeats, and the order of items."""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rpc_server.program.process import ProgramProcess
from rpc_server.program.process_factory import StartedProcess
from rpc_server.program.process_output import BoundedLog
from rpc_server.program.process_requests import ProcessRequest

CALL_ID = "heartbeat"
"""The `call_id` of no call: a `cancel` of it is answered at once and changes nothing."""

_SLOW_S = 0.02
_BEATS_PER_LIMIT = 100
_SHORTEST_S, _LONGEST_S = 0.02, 1.0


class ProcessHeartbeat:
    """Sends a `cancel` of no call every hundredth of the shortest limit so far, 0.02 s to 1 s; measures the responses.

    If a response is over 0.02 s late, the time since the one before counts as blocked, so that `blocked_s` errs high.
    It includes time in which the server or the machine was too busy to ask or to answer.
    """

    def __init__(self, process: ProgramProcess, limit_s: float) -> None:
        self._process = process
        self._loop = asyncio.get_running_loop()
        self._every_s = _interval_s(limit_s)
        self._timer: asyncio.TimerHandle | None = None
        self._asked = False
        self._seen = 0.0
        self._blocked_s = 0.0

    @property
    def blocked_s(self) -> float:
        """Seconds without a timely response; compare two readings without a `stop` between them."""
        since = self._loop.time() - self._seen
        return self._blocked_s + (since if since > self._every_s + _SLOW_S else 0.0)

    def start(self, limit_s: float) -> None:
        """Start, or continue while it runs; for a request with this limit."""
        every_s = min(self._every_s, _interval_s(limit_s))
        if self._timer is not None:
            if every_s == self._every_s:
                return
            self._blocked_s = self.blocked_s
            self._timer.cancel()
        self._every_s = every_s
        self._seen = self._loop.time()
        self._timer = self._loop.call_later(self._every_s, self._beat)

    def stop(self) -> None:
        """Send no more until `start`."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _beat(self) -> None:
        self._timer = self._loop.call_later(self._every_s, self._beat)
        if not self._asked:
            self._asked = True
            self._process.request("cancel", {"call_id": CALL_ID}, self._answered)

    def _answered(self, _: dict[str, Any]) -> None:
        self._blocked_s = self.blocked_s
        self._seen = self._loop.time()
        self._asked = False


def _interval_s(limit_s: float) -> float:
    return min(max(limit_s / _BEATS_PER_LIMIT, _SHORTEST_S), _LONGEST_S)


@dataclass(eq=False, slots=True)
class WorkItem:
    """One process request on its way through the pool.

    `isolated`: it needs a process to itself, as it may have killed or blocked one. `exclusive`: it must run while
    nothing else does, as it may have killed all processes. `died`: a process died under it. `late`: past its deadline.
    `abandoned`: no call waits for it. `unshared`: its process has run nothing else. `sent`, `blocked_mark`: time and
    `blocked_s` at sending. `log`: what it wrote since then.
    """

    work: ProcessRequest
    call_id: str
    isolated: bool = False
    exclusive: bool = False
    died: bool = False
    late: bool = False
    abandoned: bool = False
    unshared: bool = False
    slot: "WorkerSlot | None" = None
    timer: asyncio.TimerHandle | None = None
    sent: float = 0.0
    log: BoundedLog = field(default_factory=BoundedLog)
    blocked_mark: float = 0.0


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
    def queued(self) -> int:
        """The number of items that wait for any process."""
        return len(self._requeued) + sum(map(len, self._lines))

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
