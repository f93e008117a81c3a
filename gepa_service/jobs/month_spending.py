"""What a tenant may use, what it has spent and used in the present month, and whether that is all it may spend.

What a work costs is added to the work, and to its tenant's month, as it runs.
"""

from datetime import datetime

from gepa_service.model.tenant import TENANTS, Quotas, Tenant, Usage
from gepa_service.model.work import Work
from gepa_service.records import RecordStore, changed, now, stored

NOTHING_LEFT = "it waits: the tenant's money of this month is spent (`usd_per_month`)"


def usage_of(records: RecordStore, tenant: str) -> Usage:
    """Return what a tenant has used this month until now. Blocks. Raises `RecordsUnavailable`."""
    id_ = month_id(now())
    return records.get(Usage, tenant, id_) or Usage(tenant=tenant, id=id_)


def has_spent_all(records: RecordStore, tenant: str) -> bool:
    """Return whether a tenant has spent its money of this month. Blocks. Raises `RecordsUnavailable`."""
    allowed = quotas_of(records, tenant).usd_per_month
    return allowed is not None and usage_of(records, tenant).usd >= allowed


def count_spending(records: RecordStore, work: Work, usd: float, unpriced: int) -> Work:
    """Add what a work has spent since it was counted last to the work, and then to the tenant's month; return the work.

    `usd`, `unpriced`: of the whole run of an optimization; of the present attempt at a batch or step. If the month
    cannot be written, the work owes it the sum until the next call.

    Raises:
        RecordChanged: the work was deleted. RecordsUnavailable: the next call counts it.
    """

    def counted(found: Work) -> Work:
        more, unknown = max(0.0, usd - found.counted_usd), max(0, unpriced - found.counted_unpriced)
        if found.attempts != work.attempts or not (more or unknown):
            return found  # a report that was late, or counted before
        sums = {"counted_usd": found.counted_usd + more, "counted_unpriced": found.counted_unpriced + unknown}
        owed = {"owed_usd": found.owed_usd + more, "owed_unpriced": found.owed_unpriced + unknown}
        return found.model_copy(
            update={**sums, **owed, "cost_usd": found.cost_usd + more, "unpriced": found.unpriced + unknown}
        )

    work = changed(records, work, counted)
    owed_usd, owed_unpriced = work.owed_usd, work.owed_unpriced
    if not (owed_usd or owed_unpriced):
        return work
    add_usage(records, Usage(tenant=work.tenant, id=month_id(now()), usd=owed_usd, unpriced=owed_unpriced))

    def paid(found: Work) -> Work:
        owed = {"owed_usd": found.owed_usd - owed_usd, "owed_unpriced": found.owed_unpriced - owed_unpriced}
        return found.model_copy(update=owed)

    return changed(records, work, paid)


def add_usage(records: RecordStore, more: Usage) -> None:
    """Add these numbers to those of the same tenant and month. Blocks. Raises `RecordsUnavailable`."""

    def added(each: Usage) -> Usage:
        sums = {name: getattr(each, name) + getattr(more, name) for name in ("requests", "usd", "unpriced")}
        return each.model_copy(update=sums)

    stored(records, more, added)


def month_of(moment: datetime) -> str:
    """Return the month of a moment, such as `2026-01`."""
    return f"{moment:%Y-%m}"


def month_id(moment: datetime) -> str:
    """Return the id of the usage record of a moment's month."""
    return f"month_{month_of(moment)}"


def quotas_of(records: RecordStore, tenant: str) -> Quotas:
    """Return what a tenant may use; the default for one without a record. Blocks. Raises `RecordsUnavailable`."""
    found = records.get(Tenant, TENANTS, tenant)
    return Quotas() if found is None else found.quotas
