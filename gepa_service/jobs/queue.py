"""The order of jobs: tenants take turns, so that one who submits many does not hold up another's first.

The tenant with the fewest running jobs comes first, then the one that was served longest ago; of a tenant, its oldest
job. A job of a worker whose beat has stopped comes before all of them.
"""

import contextlib
import time
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from datetime import UTC, datetime

from gepa_client.settings.run_config import RunConfig
from gepa_service.jobs.month_spending import NOTHING_LEFT
from gepa_service.jobs.tenant_quotas import quotas_of
from gepa_service.model.job import TURN, Job, JobClaim, Turn
from gepa_service.records.every import every
from gepa_service.records.record import now
from gepa_service.records.store import RecordChanged, RecordExists, RecordStore

NEVER = datetime.min.replace(tzinfo=UTC)

LOOKED_AT = 50
"""Pending jobs of a tenant that are considered: those that wait after a setback are passed over."""


@dataclass
class Queue:
    """The jobs of all tenants, as one worker sees them. Used by one thread.

    `lease_s`: after how many seconds without a change of its claim, measured on this process's monotonic clock, a job
    counts as left. `has_spent_all`: whether a tenant's money of this month is spent. All methods raise
    `RecordsUnavailable`, and what `has_spent_all` raises.
    """

    records: RecordStore
    worker: str
    lease_s: float
    clock: Callable[[], float] = time.monotonic
    has_spent_all: Callable[[str], bool] = lambda _tenant: False
    _seen: dict[str, tuple[JobClaim, float]] = field(default_factory=dict)

    def claim(self, running: Container[str] = ()) -> Job | None:
        """Claim the job that is next, and return it as claimed; None if there is none that may run now.

        `running`: the jobs that this worker runs.
        """
        for left in self._left(running):
            if (claimed := self._claimed(left)) is not None:
                return claimed
        for tenant in self._tenants():
            job = self._oldest(tenant)
            if job is not None and self.has_spent_all(tenant):
                self._note(job, NOTHING_LEFT)
                continue
            if job is not None and (claimed := self._claimed(job)) is not None:
                self._served(tenant)
                return claimed
        return None

    def waiting(self) -> int:
        """Return how many jobs wait."""
        return self.records.count(Job, None, {"status": "pending"})

    def _left(self, running: Container[str]) -> list[Job]:
        """Return the running jobs whose worker has shown no beat for the lease."""
        present, left = dict[str, tuple[JobClaim, float]](), []
        for job in every(self.records, Job, None, {"status": "running"}):
            if job.claim is None or job.id in running:
                continue
            claim, since = self._seen.get(job.id, (None, 0.0))
            if claim != job.claim:
                since = self.clock()
            present[job.id] = (job.claim, since)
            if self.clock() - since >= self.lease_s:
                left.append(job)
        self._seen = present
        return left

    def _tenants(self) -> list[str]:
        """Return the tenants that have a job waiting and may run one more, in the order of their turns."""
        waiting = self.records.tenants_with(Job, {"status": "pending"})
        running = self.records.tenants_with(Job, {"status": "running"})
        free = [each for each in waiting if running.get(each, 0) < quotas_of(self.records, each).jobs_at_once]
        return sorted(free, key=lambda each: (running.get(each, 0), self._last_turn(each), each))

    def _oldest(self, tenant: str) -> Job | None:
        """Return the tenant's oldest job that may run now and for whose sandboxes there is room."""
        quota = quotas_of(self.records, tenant).sandboxes
        used = sum(sandboxes_of(job) for job in every(self.records, Job, tenant, {"status": "running"}))
        for job in self.records.page(Job, tenant, {"status": "pending"}, limit=LOOKED_AT):
            due = job.not_before is None or job.not_before <= now()
            if due and (used == 0 or used + sandboxes_of(job) <= quota):
                return job
        return None

    def _note(self, job: Job, reason: str) -> None:
        """State in the record of a pending job why it waits."""
        if job.reason != reason:
            with contextlib.suppress(RecordChanged):
                self.records.replace(job.model_copy(update={"reason": reason}))

    def _claimed(self, job: Job) -> Job | None:
        """Claim a job as it was seen; None if another process wrote it since."""
        changes = {
            "status": "running",
            "claim": JobClaim(worker=self.worker),
            "attempts": job.attempts + 1,
            "started": job.started or now(),
            "not_before": None,
            "reason": None,
        }
        try:
            return self.records.replace(job.model_copy(update=changes))
        except RecordChanged:
            return None

    def _served(self, tenant: str) -> None:
        try:
            found = self.records.get(Turn, tenant, TURN)
            if found is None:
                self.records.insert(Turn(tenant=tenant, id=TURN))
            else:
                self.records.replace(found)
        except (RecordChanged, RecordExists):
            return  # another worker served it in this moment

    def _last_turn(self, tenant: str) -> datetime:
        found = self.records.get(Turn, tenant, TURN)
        return NEVER if found is None else found.updated


def sandboxes_of(job: Job) -> int:
    """Return how many sandboxes a job asks for."""
    default: int = RunConfig.model_fields["sandboxes"].default
    return int(job.settings.get("sandboxes") or default)
