"""The first tenant of a service on one machine, and its first key."""

from gepa_service.auth.keys import make_key
from gepa_service.model.tenant import TENANTS, Tenant
from gepa_service.records.record import new_id
from gepa_service.records.store import RecordStore

NAME = "default"


def create_first_tenant(records: RecordStore) -> str | None:
    """Create a tenant with a key of an owner, unless there is a tenant; return the key, which is stored nowhere."""
    if records.page(Tenant, TENANTS, limit=1):
        return None
    tenant = Tenant(tenant=TENANTS, id=new_id("tenant"), name=NAME)
    key, record = make_key(tenant.id, "first key", "owner")
    records.insert(record)  # before its tenant: a start that is cut off here is made up for by the next one
    records.insert(tenant)
    return key
