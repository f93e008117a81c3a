"""A worker: claims jobs in their fair order and runs several at once, each with processes of its own."""

import logging
import socket
import threading
import time
import uuid
from dataclasses import dataclass, field

from gepa_client.errors import JournalError
from gepa_service.jobs.attempt import Attempt, WorkerParts
from gepa_service.jobs.job_starter import JobStarter, open_starter
from gepa_service.jobs.month_spending import MonthLimit, month_limit
from gepa_service.jobs.queue import Queue
from gepa_service.model.job import Job
from gepa_service.records.store import RecordError

IDLE_S = 0.25
"""Seconds between two looks at the whole queue, which also finds jobs of dead workers and jobs that may run by now."""

LOOK_S = 0.05
"""Seconds between two counts of the waiting jobs, which cost little; if there are more, the queue is looked at."""

LEASE_S = 10.0

_log = logging.getLogger(__name__)


def worker_name() -> str:
    """Return a name that no other worker has, also none of this machine before."""
    return f"{socket.gethostname()[:40]}-{uuid.uuid4().hex[:12]}"


@dataclass
class Worker:
    """Runs jobs until `drain` is called. `at_once`: how many jobs it runs at the same time."""

    parts: WorkerParts
    at_once: int
    _draining: threading.Event = field(default_factory=threading.Event)
    _running: dict[str, threading.Thread] = field(default_factory=dict)

    def drain(self) -> None:
        """Claim no more, and leave the running jobs to other workers; safe to call from a signal handler."""
        self._draining.set()

    @property
    def is_busy(self) -> bool:
        """Whether it runs a job; safe to call from any thread."""
        return any(thread.is_alive() for thread in tuple(self._running.values()))

    def run(self) -> None:
        """Work until it is drained and its jobs' processes have ended."""
        with open_starter() as starter:
            self._run(starter)

    def _run(self, starter: JobStarter) -> None:
        parts = self.parts
        limit = month_limit(parts.records, parts.journals)
        queue = Queue(parts.records, parts.name, parts.lease_s, has_spent_all=limit.is_reached)
        while not self._draining.is_set():
            self._forget_ended()
            waiting = self._waiting(queue)
            claimed = self._next(queue) if len(self._running) < self.at_once else None
            if claimed is None:
                self._wait_for_more(queue, waiting)
                continue
            thread = threading.Thread(target=self._attempt, args=(claimed, starter, limit), name=claimed.id)
            self._running[claimed.id] = thread
            thread.start()
        for thread in self._running.values():
            thread.join()

    def _wait_for_more(self, queue: Queue, waiting: int) -> None:
        """Wait for `IDLE_S`, or until more jobs wait than did."""
        until = time.monotonic() + IDLE_S
        while not self._draining.wait(LOOK_S) and time.monotonic() < until:
            if self._waiting(queue) > waiting:
                return

    def _waiting(self, queue: Queue) -> int:
        """Return how many jobs wait; 0 if that is not known, which `_next` reports."""
        try:
            return queue.waiting()
        except RecordError:
            return 0

    def _next(self, queue: Queue) -> Job | None:
        try:
            return queue.claim(self._running)
        except (RecordError, JournalError) as error:
            _log.warning("no job can be claimed: %s", error)
            return None

    def _attempt(self, job: Job, starter: JobStarter, limit: MonthLimit) -> None:
        try:
            Attempt(self.parts, job, self._draining, starter, limit.is_reached).run()
        except Exception:  # noqa: BLE001  another worker takes the job over; this one continues its others
            _log.exception("job %s is left to another worker", job.id)

    def _forget_ended(self) -> None:
        self._running = {id_: thread for id_, thread in self._running.items() if thread.is_alive()}
