"""The records of a service."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gepa_service.records.open_records import open_records
from gepa_service.records.store import RecordStore


@pytest.fixture
def records(tmp_path: Path) -> Iterator[RecordStore]:
    opened = open_records(str(tmp_path / "records.db"))
    yield opened
    opened.close()
