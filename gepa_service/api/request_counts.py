"""Count requests by tenant, in memory, and add them to the tenant's month every few seconds."""

import threading

from gepa_service.jobs.month_spending import add_usage, month_id
from gepa_service.model.tenant import Usage
from gepa_service.records.record import now
from gepa_service.records.store import RecordStore


class RequestCounts:
    """Counts of one process; what was counted since the last `write` is lost if it is killed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str], int] = {}

    def add(self, tenant: str) -> None:
        """Count a request."""
        self._put({(tenant, month_id(now())): 1})

    def of(self, tenant: str) -> int:
        """Return how many of this month are not written yet."""
        return self._counts.get((tenant, month_id(now())), 0)

    def write(self, records: RecordStore) -> None:
        """Add the counts to the records. What cannot be written stays counted. Raises `RecordsUnavailable`."""
        with self._lock:
            taken, self._counts = self._counts, {}
        left = dict(taken)
        try:
            for (tenant, month), count in taken.items():
                add_usage(records, Usage(tenant=tenant, id=month, requests=count))
                del left[tenant, month]
        finally:
            self._put(left)

    def _put(self, counts: dict[tuple[str, str], int]) -> None:
        with self._lock:
            for name, count in counts.items():
                self._counts[name] = self._counts.get(name, 0) + count
