from collections.abc import Iterator
from pathlib import Path

import pytest

from gepa_service.model.tenant import TENANTS, Tenant
from gepa_service.records.open_records import open_records
from gepa_service.records.store import RecordStore


@pytest.fixture
def records(tmp_path: Path) -> Iterator[RecordStore]:
    """The records of two tenants, acme and beta."""
    opened = open_records(str(tmp_path / "records.db"))
    for name in ("acme", "beta"):
        opened.insert(Tenant(tenant=TENANTS, id=name, name=name))
    yield opened
    opened.close()
