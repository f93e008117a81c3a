"""A worker: claims work in its fair order and does several at once, each with processes of its own."""

import logging
import socket
import threading
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gepa_client.errors import JournalError
from gepa_service.jobs.attempt import Attempt
from gepa_service.jobs.month_spending import MonthLimit, month_limit
from gepa_service.jobs.parts import WorkerParts
from gepa_service.jobs.queue import Queue
from gepa_service.model.work import LANES, What, Work
from gepa_service.records.store import RecordError

IDLE_S = 0.25
"""Seconds between two looks at the queue, which also finds what dead workers left and what may run by now."""

LEASE_S = 10.0

_log = logging.getLogger(__name__)


def worker_name() -> str:
    """Return a name that no other worker has, also none of this machine before."""
    return f"{socket.gethostname()[:40]}-{uuid.uuid4().hex[:12]}"


@dataclass
class Worker:
    """Does work until `drain` is called. `at_once`: how much of each lane it does at the same time."""

    parts: WorkerParts
    at_once: int
    _draining: threading.Event = field(default_factory=threading.Event)
    _running: dict[str, tuple[Work, threading.Thread]] = field(default_factory=dict)

    def drain(self) -> None:
        """Claim no more, and leave the running work to other workers; safe to call from a signal handler."""
        self._draining.set()

    @property
    def is_busy(self) -> bool:
        """Whether it does any work; safe to call from any thread."""
        return any(thread.is_alive() for _, thread in tuple(self._running.values()))

    def run(self) -> None:
        """Work until it is drained and the processes of its work have ended."""
        parts = self.parts
        limit = month_limit(parts.records, parts.journals)
        queue = Queue(parts.records, parts.name, parts.lease_s, has_spent_all=limit.is_reached)
        while not self._draining.is_set():
            self._running = {id_: each for id_, each in self._running.items() if each[1].is_alive()}
            kinds = [work.what for work, _ in self._running.values()]
            lanes = [lane for lane in LANES if sum(what in lane for what in kinds) < self.at_once]
            claimed = self._next(queue, lanes) if lanes else None
            if claimed is None:
                self._draining.wait(IDLE_S)
                continue
            thread = threading.Thread(target=self._attempt, args=(claimed, limit), name=claimed.id)
            self._running[claimed.id] = claimed, thread
            thread.start()
        for _, thread in self._running.values():
            thread.join()

    def _next(self, queue: Queue, lanes: Iterable[Sequence[What]]) -> Work | None:
        try:
            return queue.claim(self._running, lanes)
        except (RecordError, JournalError) as error:
            _log.warning("no work can be claimed: %s", error)
            return None

    def _attempt(self, work: Work, limit: MonthLimit) -> None:
        try:
            Attempt(self.parts, work, self._draining, limit.is_reached).run()
        except Exception:  # noqa: BLE001  another worker takes the work over; this one continues the rest
            _log.exception("%s is left to another worker", work.id)
