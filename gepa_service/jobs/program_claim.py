"""Work on a program that a worker has claimed: its record, its results and its cost, as the worker writes them."""

from collections.abc import Iterator
from typing import Any

from gepa_service.jobs.month_spending import month_id
from gepa_service.jobs.month_usage import add_usage
from gepa_service.jobs.program_messages import TaskDone, WorkSpent
from gepa_service.model.job import JobClaim
from gepa_service.model.rollouts import WORK_ENDED, ProgramWork, TaskResult, WorkStatus, task_result_id
from gepa_service.model.tenant import Usage
from gepa_service.records.record import now
from gepa_service.records.store import LARGEST_PAGE, RecordExists, RecordStore, TenantRecords, changed
from gepa_service.webhooks.outbox import emit

INCONCLUSIVE = frozenset({"infra_error", "cancelled"})
"""Statuses of results that are not of the program."""


class ClaimedWork:
    """A batch or step that the worker of this name has claimed.

    `record`: as it was last written. `results`: of its tasks, by index. Every method may raise `RecordsUnavailable`,
    and `RecordChanged` if the record was deleted.
    """

    def __init__(self, records: RecordStore, record: ProgramWork, worker: str) -> None:
        self._records, self._worker = records, worker
        self._counted = WorkSpent(usd=0.0, unpriced=0)
        self.record = record
        self.results = self._stored()

    @property
    def is_claimed(self) -> bool:
        """Whether the work is under way, and no other worker has taken it over."""
        return self._has_claim(self.record) and self.record.status == "running"

    @property
    def counts(self) -> dict[str, int]:
        """How many tasks are done, and how many of these have a result that is not of the program."""
        failed = sum(each["status"] in INCONCLUSIVE for each in self.results.values())
        return {"done": len(self.results), "failed": failed}

    def keep(self, done: TaskDone) -> None:
        """Store the result of a task, unless it has one."""
        while done.index not in self.results:
            result = TaskResult(
                tenant=self.record.tenant,
                id=task_result_id(self.record.id, len(self.results)),
                work_id=self.record.id,
                index=done.index,
                result=done.result,
            )
            try:
                self._records.insert(result)
            except RecordExists:  # written by a worker that was thought dead
                self.results = self._stored()
            else:
                self.results[done.index] = done.result

    def count(self, spent: WorkSpent) -> None:
        """Add what was spent since the last time to the tenant's month and to the work. `spent`: in all."""
        usd, unpriced = spent.usd - self._counted.usd, spent.unpriced - self._counted.unpriced
        if not usd and not unpriced:
            return
        month = Usage(tenant=self.record.tenant, id=month_id(now()), work_usd=usd, work_unpriced=unpriced)
        add_usage(self._records, month)
        self._counted = spent
        self.record = changed(
            self._records, self.record, lambda found: found.model_copy(update={"cost_usd": found.cost_usd + usd})
        )

    def beat(self) -> None:
        """Show that the worker lives, and how much is done."""

        def change(found: ProgramWork) -> ProgramWork:
            if found.claim is None or found.claim.worker != self._worker or found.status != "running":
                return found
            beat = JobClaim(worker=self._worker, beat=found.claim.beat + 1)
            return found.model_copy(update={"claim": beat, **self.counts})

        self.record = changed(self._records, self.record, change)

    def requeue(self, reason: str, attempts: int) -> None:
        """Return the work to the queue, unless it is to be cancelled or is another worker's by now."""

        def change(found: ProgramWork) -> ProgramWork:
            if not self._has_claim(found) or found.status != "running" or found.wanted == "cancel":
                return found
            waits = {"status": "queued", "claim": None, "reason": reason, "attempts": attempts}
            return found.model_copy(update={**waits, **self.counts})

        self.record = changed(self._records, self.record, change)

    def end(self, status: WorkStatus, reason: str | None, result: dict[str, Any] | None = None) -> None:
        """Write how the work ended, unless it is another worker's by now, and announce the end of a batch."""

        def change(found: ProgramWork) -> ProgramWork:
            if found.status in WORK_ENDED or not self._has_claim(found):
                return found
            ended = {"status": status, "reason": reason, "completed": now(), "claim": None, **self.counts}
            return found.model_copy(update=ended if result is None else {**ended, "result": result})

        self.record = changed(self._records, self.record, change)
        if self.record.status == status and self.record.what == "rollouts":
            counts = {"batch_id": self.record.id, **self.counts, "total": len(self.record.tasks)}
            emit(TenantRecords(self._records, self.record.tenant), "batch.ended", {**counts, "status": status})

    def _has_claim(self, found: ProgramWork) -> bool:
        return found.claim is not None and found.claim.worker == self._worker

    def _stored(self) -> dict[int, dict[str, Any]]:
        return {each.index: each.result for each in self._pages()}

    def _pages(self) -> Iterator[TaskResult]:
        where, after = {"work_id": self.record.id}, None
        while True:
            page = self._records.page(TaskResult, self.record.tenant, where, after=after, limit=LARGEST_PAGE)
            yield from page
            if len(page) < LARGEST_PAGE:
                return
            after = page[-1].id
