"""The quotas of a tenant."""

from gepa_service.model.tenant import TENANTS, Quotas, Tenant
from gepa_service.records.store import RecordStore


def quotas_of(records: RecordStore, tenant: str) -> Quotas:
    """Return what a tenant may use; the default for one without a record. Blocks. Raises `RecordsUnavailable`."""
    found = records.get(Tenant, TENANTS, tenant)
    return Quotas() if found is None else found.quotas
