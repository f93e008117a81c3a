"""The records of a service."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gepa_service.records.sqlite import SqliteRecords


@pytest.fixture
def records(tmp_path: Path) -> Iterator[SqliteRecords]:
    opened = SqliteRecords(tmp_path / "records.db")
    yield opened
    opened.close()
