"""The order of work: tenants take turns, so that one who submits much does not hold up another's first.

In a lane the tenant with the least under way comes first, then the one that was served longest ago; of a tenant, its
oldest work. Work of a worker whose beat has stopped comes before all of it.
"""

import contextlib
import time
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from gepa_client.settings.run_config import RunConfig
from gepa_service.jobs.month_spending import NOTHING_LEFT
from gepa_service.jobs.tenant_quotas import quotas_of
from gepa_service.model.work import LANES, TURN, Claim, Turn, What, Work
from gepa_service.records.every import every
from gepa_service.records.record import now
from gepa_service.records.store import RecordChanged, RecordExists, RecordStore

NEVER = datetime.min.replace(tzinfo=UTC)

LOOKED_AT = 50
"""Pending works of a tenant and kind that are considered: those that wait after a setback are passed over."""


@dataclass
class Queue:
    """The work of all tenants, as one worker sees it. Used by one thread.

    `lease_s`: after how many seconds without a change of its claim, measured on this process's monotonic clock, work
    counts as left. `has_spent_all`: whether a tenant's money of this month is spent. All methods raise
    `RecordsUnavailable`, and what `has_spent_all` raises.
    """

    records: RecordStore
    worker: str
    lease_s: float
    clock: Callable[[], float] = time.monotonic
    has_spent_all: Callable[[str], bool] = lambda _tenant: False
    _seen: dict[str, tuple[Claim, float]] = field(default_factory=dict)

    def claim(self, running: Container[str] = (), lanes: Iterable[Sequence[What]] = LANES) -> Work | None:
        """Claim the work that is next, and return it as claimed; None if there is none that may run now.

        `running`: the work that this worker does. `lanes`: those of `LANES` in which it can do more.
        """
        lanes = tuple(lanes)
        for left in self._left(running):
            setbacks = left.setbacks + 1
            if any(left.what in lane for lane in lanes) and (claimed := self._claimed(left, setbacks)) is not None:
                return claimed
        for lane in lanes:
            for tenant in self._tenants(lane):
                work = self._oldest(tenant, lane)
                if work is not None and self.has_spent_all(tenant):
                    self._note(work, NOTHING_LEFT)
                elif work is not None and (claimed := self._claimed(work)) is not None:
                    self._served(tenant)
                    return claimed
        return None

    def _left(self, running: Container[str]) -> list[Work]:
        """Return the running work whose worker has shown no beat for the lease."""
        present, left = dict[str, tuple[Claim, float]](), []
        for work in every(self.records, Work, None, {"status": "running"}):
            if work.claim is None or work.id in running:
                continue
            claim, since = self._seen.get(work.id, (None, 0.0))
            if claim != work.claim:
                since = self.clock()
            present[work.id] = (work.claim, since)
            if self.clock() - since >= self.lease_s:
                left.append(work)
        self._seen = present
        return left

    def _tenants(self, lane: Sequence[What]) -> list[str]:
        """Return the tenants that have work waiting in a lane and may run more there, in the order of their turns."""
        waiting = self.records.tenants_with(Work, {"what": lane, "status": "pending"})
        running = self.records.tenants_with(Work, {"what": lane, "status": "running"})
        free = [each for each in waiting if running.get(each, 0) < quotas_of(self.records, each).jobs_at_once]
        return sorted(free, key=lambda each: (running.get(each, 0), self._last_turn(each), each))

    def _oldest(self, tenant: str, lane: Sequence[What]) -> Work | None:
        """Return the tenant's oldest work that may run now and for whose sandboxes there is room."""
        quota = quotas_of(self.records, tenant).sandboxes
        used = sum(sandboxes_of(work) for work in every(self.records, Work, tenant, {"status": "running"}))
        for work in self._waiting(tenant, lane):
            due = work.not_before is None or work.not_before <= now()
            if due and (used == 0 or used + sandboxes_of(work) <= quota):
                return work
        return None

    def _waiting(self, tenant: str, lane: Sequence[What]) -> list[Work]:
        where = [{"what": what, "status": "pending"} for what in lane]
        pages = [self.records.page(Work, tenant, each, limit=LOOKED_AT) for each in where]
        return sorted((work for page in pages for work in page), key=lambda work: work.created)

    def _note(self, work: Work, reason: str) -> None:
        """State in the record of pending work why it waits."""
        if work.reason != reason:
            with contextlib.suppress(RecordChanged):
                self.records.replace(work.model_copy(update={"reason": reason}))

    def _claimed(self, work: Work, setbacks: int | None = None) -> Work | None:
        """Claim work as it was seen; None if another process wrote it since. `setbacks`: None for no further one."""
        changes = {
            "status": "running",
            "claim": Claim(worker=self.worker),
            "attempts": work.attempts + 1,
            "setbacks": work.setbacks if setbacks is None else setbacks,
            "started": work.started or now(),
            "not_before": None,
            "reason": None,
        }
        try:
            return self.records.replace(work.model_copy(update=changes))
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


def sandboxes_of(work: Work) -> int:
    """Return how many sandboxes a work asks for."""
    default: int = RunConfig.model_fields["sandboxes"].default
    return int(work.settings.get("sandboxes") or default)
