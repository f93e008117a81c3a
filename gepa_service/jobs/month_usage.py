"""Add to what a tenant has used in a month."""

from gepa_service.model.tenant import Usage
from gepa_service.records.store import RecordExists, RecordStore, changed


def add_usage(records: RecordStore, tenant: str, month: str, *, requests: int = 0, work_usd: float = 0.0) -> None:
    """Add requests, and US dollars that batches and steps have cost. Blocks.

    `month`: of `month_id`. Raises `RecordsUnavailable`.
    """
    found = records.get(Usage, tenant, month)
    if found is None:
        try:
            records.insert(Usage(tenant=tenant, id=month, requests=requests, work_usd=work_usd))
        except RecordExists:
            add_usage(records, tenant, month, requests=requests, work_usd=work_usd)
        return

    def more(each: Usage) -> Usage:
        return each.model_copy(update={"requests": each.requests + requests, "work_usd": each.work_usd + work_usd})

    changed(records, found, more)
