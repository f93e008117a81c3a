"""What an attempt at a batch or step keeps beside the work's record: the results of its tasks, and what they cost."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from evolverpc_common.redaction import Secrets
from gepa_client.transport.calls import INCONCLUSIVE
from gepa_service.jobs.kept import Kept
from gepa_service.jobs.month_spending import month_id
from gepa_service.jobs.month_usage import add_usage
from gepa_service.jobs.parts import AttemptParts
from gepa_service.jobs.work_order import Ended, Message, ProgramOrder, Spent, TaskDone
from gepa_service.model.tenant import Usage
from gepa_service.model.work import Status, TaskResult, Work, task_result_id
from gepa_service.records.every import every
from gepa_service.records.record import now
from gepa_service.records.store import RecordExists

LATE_S = 300.0
"""Seconds beside `timeout_s` for the start of the sandboxes; then the process is ended."""


class KeptResults(Kept):
    """Of a batch or step."""

    def __init__(self, parts: AttemptParts, work: Work) -> None:
        assert work.program is not None, "a batch or step has a program"  # noqa: S101
        self._parts, self._work, self._program = parts, work, work.program
        self._counted = Spent(usd=0.0, unpriced=0)
        self._results = self._stored()
        self._before = len(self._results)
        self.longest_s = self._program.timeout_s + LATE_S

    @property
    def is_further(self) -> bool:
        """As of `Kept`."""
        return len(self._results) > self._before

    def order(self, folder: Path, settings: dict[str, Any], common: dict[str, Any]) -> ProgramOrder:
        """As of `Kept`."""
        done = frozenset(self._results)
        kind: Any = self._work.what
        return ProgramOrder(**common, folder=folder, settings=settings, what=kind, program=self._program, done=done)

    def take(self, message: Message) -> None:
        """As of `Kept`."""
        if isinstance(message, Spent):
            self._count(message)
        elif isinstance(message, TaskDone):
            self._store(message)

    def changes(self, found: Work, status: Status) -> dict[str, Any]:
        """As of `Kept`."""
        del found, status
        failed = sum(each["status"] in INCONCLUSIVE for each in self._results.values())
        return {"done": len(self._results), "failed": failed, "cost_usd": self._work.cost_usd + self._counted.usd}

    def ended(self, ended: Ended, secrets: Secrets, log: Callable[[str], None]) -> dict[str, Any]:
        """As of `Kept`."""
        del secrets, log
        counts = self.changes(self._work, "running")
        conclusive = counts["done"] > counts["failed"]
        if ended.status != "failed" and not counts["failed"]:
            return {"status": "completed", "reason": ended.reason, "result": ended.result}
        return {"status": "partial" if conclusive else "failed", "reason": ended.reason}

    def _store(self, done: TaskDone) -> None:
        """Store the result of a task, unless it has one."""
        while done.index not in self._results:
            result = TaskResult(
                tenant=self._work.tenant,
                id=task_result_id(self._work.id, len(self._results)),
                work_id=self._work.id,
                index=done.index,
                result=done.result,
            )
            try:
                self._parts.records.insert(result)
            except RecordExists:  # written by an attempt that was thought dead
                self._results = self._stored()
            else:
                self._results[done.index] = done.result

    def _count(self, spent: Spent) -> None:
        """Add what was spent since the last time to the tenant's month."""
        usd, unpriced = spent.usd - self._counted.usd, spent.unpriced - self._counted.unpriced
        if usd or unpriced:
            month = Usage(tenant=self._work.tenant, id=month_id(now()), work_usd=usd, work_unpriced=unpriced)
            add_usage(self._parts.records, month)
            self._counted = spent

    def _stored(self) -> dict[int, dict[str, Any]]:
        where = {"work_id": self._work.id}
        return {each.index: each.result for each in every(self._parts.records, TaskResult, self._work.tenant, where)}
