import pytest

from gepa_service.model.tenant import TENANTS, Tenant
from gepa_service.records import RecordStore


@pytest.fixture
def records(records: RecordStore) -> RecordStore:
    """The records of two tenants, acme and beta."""
    for name in ("acme", "beta"):
        records.insert(Tenant(tenant=TENANTS, id=name, name=name))
    return records
