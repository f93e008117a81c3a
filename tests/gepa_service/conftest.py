"""The records of a service, and a clock."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gepa_service.records import RecordStore, open_records


@pytest.fixture
def records(tmp_path: Path) -> Iterator[RecordStore]:
    opened = open_records(str(tmp_path / "records.db"))
    yield opened
    opened.close()


class Clock:
    """Seconds, which a test lets pass."""

    present = 1000.0

    def __call__(self) -> float:
        return self.present


@pytest.fixture
def clock() -> Clock:
    return Clock()
