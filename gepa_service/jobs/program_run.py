"""Follow the process of claimed work to its end: keep its results, count its cost, and write how it ended."""

import threading
import time
from collections.abc import Callable
from typing import Any

from gepa_client.errors import JournalError
from gepa_service.jobs.month_spending import NOTHING_LEFT
from gepa_service.jobs.program_claim import ClaimedWork
from gepa_service.jobs.program_messages import (
    StepDone,
    TaskDone,
    WorkFailed,
    WorkLog,
    WorkMessage,
    WorkOrder,
    WorkOver,
    WorkSpent,
)
from gepa_service.jobs.program_process import ProgramProcess
from gepa_service.model.rollouts import WorkStatus

BEAT_S = 2.0
MOST_ATTEMPTS = 3

LATE_S = 300.0
"""Seconds beside `timeout_s` for the start of the sandboxes; then the process is ended."""

KEPT_LOG = 20
"""Lines of a process that the reason of a failure repeats."""


class ProgramRun:
    """One attempt at claimed work. `has_spent_all`: as of `ProgramWorker`."""

    def __init__(
        self, work: ClaimedWork, process: ProgramProcess, order: WorkOrder, has_spent_all: Callable[[str], bool]
    ) -> None:
        self._work, self._process, self._order, self._has_spent_all = work, process, order, has_spent_all
        self._log: list[str] = []
        self._step: dict[str, Any] | None = None
        self._failure: WorkFailed | None = None
        self._over: WorkOver | None = None
        self._spent = WorkSpent(usd=0.0, unpriced=0)

    def to_end(self, stop: threading.Event) -> None:
        """Follow the process to its end, or end it if the work is cancelled, is another worker's, or `stop` is set."""
        most_s = self._order.timeout_s + LATE_S
        began = beat = time.monotonic()
        try:
            self._process.begin(self._order)
            for message in self._process.messages():
                if message is not None:
                    self._take(message)
                if isinstance(message, WorkOver | WorkFailed):
                    break
                if stop.is_set():
                    return  # another worker takes it over
                if time.monotonic() - began > most_s:
                    self._failure = WorkFailed(message=f"it took longer than {most_s:g} s")
                    break
                if time.monotonic() - beat >= BEAT_S:
                    beat = time.monotonic()
                    if not self._continues():
                        return
            self._work.count(self._spent)
            self._finish()
        finally:
            self._end_process()

    def _take(self, message: WorkMessage) -> None:
        match message:
            case TaskDone():
                self._work.keep(message)
            case StepDone():
                self._step = message.result
            case WorkSpent():
                self._spent = message
            case WorkLog():
                self._log = [*self._log, message.text][-KEPT_LOG:]
            case WorkFailed():
                self._failure = message
            case WorkOver():
                self._over = message

    def _continues(self) -> bool:
        """Write a beat, the progress and the cost; return whether the work continues here."""
        self._work.count(self._spent)
        self._work.beat()
        if self._work.record.wanted == "cancel":
            self._end_process()
            self._work.end("cancelled", "cancelled")
        elif self._work.is_claimed and self._must_wait_for_money():
            self._work.requeue(NOTHING_LEFT, attempts=self._work.record.attempts - 1)
        return self._work.is_claimed

    def _must_wait_for_money(self) -> bool:
        """Return whether the tenant's money of the month is spent. A step continues: what it has done would be lost."""
        try:
            return self._work.record.what == "rollouts" and self._has_spent_all(self._work.record.tenant)
        except JournalError:  # what jobs have cost cannot be read now
            return False

    def _finish(self) -> None:
        work, counts = self._work, self._work.counts
        failure = self._failure or (None if self._over is not None else WorkFailed(message="the process ended early"))
        if failure is not None and failure.interrupted and work.record.attempts < MOST_ATTEMPTS:
            work.requeue(failure.message, attempts=work.record.attempts)
        elif failure is not None:
            why = "\n".join([failure.message, *self._log]).strip()
            status: WorkStatus = "partial" if counts["done"] > counts["failed"] else "failed"
            work.end(status, why)
        elif work.record.what == "step":
            work.end("completed", None, self._step)
        else:
            reason = "the time of the batch was over" if self._over is not None and self._over.timed_out else None
            whole: WorkStatus = "completed" if not counts["failed"] else "partial"
            nothing = counts["done"] and counts["failed"] == counts["done"]
            work.end("failed" if nothing else whole, reason)

    def _end_process(self) -> None:
        """End the process; keep the results and count the cost that it reports last."""
        last = self._process.end()
        for message in last:
            if isinstance(message, WorkSpent):
                self._take(message)
        self._work.count(self._spent)
        for message in last:
            if isinstance(message, TaskDone):
                self._take(message)
