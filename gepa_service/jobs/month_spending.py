"""What a tenant's jobs of this month have cost, by their runs' journals."""

import threading
from dataclasses import dataclass, field
from datetime import datetime

from gepa_client.errors import NoSuchRun
from gepa_client.journal.store import Store
from gepa_service.model.job import ENDED, Job
from gepa_service.records.every import every
from gepa_service.records.record import now
from gepa_service.records.store import RecordStore

MOST_KEPT = 100_000


@dataclass(frozen=True)
class MonthSpending:
    """`unpriced`: results whose cost is not known, so that `usd` is the least that was spent."""

    jobs: int
    usd: float
    unpriced: int


@dataclass
class SpendingReader:
    """Reads what jobs have cost; what ended jobs have cost is kept. Safe to use from several threads."""

    _ended: dict[str, tuple[float, int]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, records: RecordStore, journals: Store, tenant: str) -> MonthSpending:
        """Return what the jobs that were submitted this month have cost until now.

        Raises:
            RecordsUnavailable, StoreUnavailable: a database cannot be read.
        """
        found = [self._spent(journals, job) for job in every(records, Job, tenant, after=first_id_of(now()))]
        return MonthSpending(len(found), sum(usd for usd, _ in found), sum(unpriced for _, unpriced in found))

    def _spent(self, journals: Store, job: Job) -> tuple[float, int]:
        known = self._ended.get(job.id)
        if known is not None:
            return known
        try:
            spent = journals.spending(job.id)
        except NoSuchRun:  # it has not begun
            return 0.0, 0
        total = sum(each.cost_usd for each in spent), sum(each.unpriced - each.unreported for each in spent)
        if job.status in ENDED:
            with self._lock:
                if len(self._ended) >= MOST_KEPT:
                    self._ended.clear()
                self._ended[job.id] = total
        return total


def first_id_of(moment: datetime) -> str:
    """Return an id that all jobs follow that were submitted in the month of this moment, see `new_id`."""
    start = moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return f"job_{int(start.timestamp() * 1000):012x}"
