from collections.abc import Iterator
from pathlib import Path

import pytest

from gepa_service.model.tenant import TENANTS, Tenant
from gepa_service.records.sqlite import SqliteRecords


@pytest.fixture
def records(tmp_path: Path) -> Iterator[SqliteRecords]:
    """The records of two tenants, acme and beta."""
    opened = SqliteRecords(tmp_path / "records.db")
    for name in ("acme", "beta"):
        opened.insert(Tenant(tenant=TENANTS, id=name, name=name))
    yield opened
    opened.close()
