"""What a tenant has spent and used in the present month, and whether that is all it may spend.

What jobs cost is in their runs' journals, what batches and steps cost is counted as they run.
"""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from gepa_client.errors import NoSuchRun
from gepa_client.journal.store import Store
from gepa_service.jobs.tenant_quotas import quotas_of
from gepa_service.model.tenant import Usage
from gepa_service.model.work import ENDED, OPTIMIZATIONS, Work
from gepa_service.records.record import now
from gepa_service.records.store import RecordExists, RecordStore, changed

MOST_KEPT = 100_000
KNOWN_S = 5.0
"""Seconds for which what a tenant has spent counts as known."""

NOTHING_LEFT = "it waits: the tenant's money of this month is spent (`usd_per_month`)"


@dataclass(frozen=True)
class MonthSpending:
    """`jobs`: submitted this month. `unpriced`: results of unknown cost, so that `usd` is the least that was spent."""

    jobs: int
    usd: float
    unpriced: int


@dataclass
class SpendingReader:
    """Reads what tenants have spent; what ended jobs have cost is kept. Safe to use from several threads."""

    _ended: dict[str, tuple[float, int]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, records: RecordStore, journals: Store, tenant: str) -> MonthSpending:
        """Return what the tenant has spent this month until now, by jobs that were submitted earlier too.

        Raises:
            RecordsUnavailable, StoreUnavailable: a database cannot be read.
        """
        moment = now()
        first, jobs, usd, unpriced = first_id_of(moment), 0, 0.0, 0
        for job in _of_month(records, tenant, moment):
            cost, unknown = self._spent(journals, job)
            jobs += job.id > first
            usd += max(0.0, cost - job.usd_before_month)
            unpriced += unknown
        month = records.get(Usage, tenant, month_id(moment))
        if month is not None:
            usd, unpriced = usd + month.work_usd, unpriced + month.work_unpriced
        return MonthSpending(jobs, usd, unpriced)

    def _spent(self, journals: Store, job: Work) -> tuple[float, int]:
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


def _of_month(records: RecordStore, tenant: str, moment: datetime) -> Iterator[Work]:
    """Yield the jobs that were submitted this month, and the older ones that have run in it."""
    first = first_id_of(moment)
    yield from records.every(Work, tenant, OPTIMIZATIONS, after=first)
    for job in records.every(Work, tenant, {"month": month_of(moment)}):
        if job.id > first:
            return
        yield job


@dataclass
class MonthLimit:
    """Whether tenants have spent their money of the month. Safe to use from several threads.

    `spent`: returns the USD that a tenant has spent this month; asked again after `KNOWN_S`.
    """

    records: RecordStore
    spent: Callable[[str], float]
    clock: Callable[[], float] = time.monotonic
    _known: dict[str, tuple[float, float]] = field(default_factory=dict)

    def is_reached(self, tenant: str) -> bool:
        """Return whether nothing is left.

        Raises:
            RecordsUnavailable, and what `spent` raises.
        """
        allowed = quotas_of(self.records, tenant).usd_per_month
        if allowed is None:
            return False
        known = self._known.get(tenant)
        if known is None or self.clock() - known[1] >= KNOWN_S:
            known = self._known[tenant] = (self.spent(tenant), self.clock())
        return known[0] >= allowed


def month_limit(records: RecordStore, journals: Store, reader: SpendingReader) -> MonthLimit:
    """Return a limit that reads what was spent from these stores."""
    return MonthLimit(records, lambda tenant: reader.of(records, journals, tenant).usd)


def add_usage(records: RecordStore, more: Usage) -> None:
    """Add these numbers to those of the same tenant and month. Blocks. Raises `RecordsUnavailable`."""
    found = records.get(Usage, more.tenant, more.id)
    if found is None:
        try:
            records.insert(more)
        except RecordExists:
            add_usage(records, more)
        return

    def added(each: Usage) -> Usage:
        sums = {
            "requests": each.requests + more.requests,
            "work_usd": each.work_usd + more.work_usd,
            "work_unpriced": each.work_unpriced + more.work_unpriced,
        }
        return each.model_copy(update=sums)

    changed(records, found, added)


def month_of(moment: datetime) -> str:
    """Return the month of a moment, such as `2026-01`."""
    return f"{moment:%Y-%m}"


def month_id(moment: datetime) -> str:
    """Return the id of the usage record of a moment's month."""
    return f"month_{month_of(moment)}"


def first_id_of(moment: datetime) -> str:
    """Return an id that all jobs follow that were submitted in the month of this moment, see `new_id`."""
    start = moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return f"job_{int(start.timestamp() * 1000):012x}"
