"""Add to what a tenant has used in a month."""

from gepa_service.model.tenant import Usage
from gepa_service.records.store import RecordExists, RecordStore, changed


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
