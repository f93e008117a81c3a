"""Both stores of records, each a real one: a SQLite file, and a MongoDB server spoken to over TCP."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gepa_service.records import RecordStore, open_records
from tests.gepa_client.journal.conftest import mongo_server, mongo_url

Open = Callable[[], RecordStore]
__all__ = ["mongo_server", "mongo_url"]


@pytest.fixture(params=["sqlite", "mongo"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an empty store is; the test runs once for each kind."""
    if request.param == "sqlite":
        return str(tmp_path / "deep" / "records.db")
    found: str = request.getfixturevalue("mongo_url")
    return found


@pytest.fixture
def another(url: str) -> Iterator[Open]:
    """Opens the same store again, as another process would."""
    opened: list[RecordStore] = []

    def again() -> RecordStore:
        opened.append(open_records(url))
        return opened[-1]

    yield again
    for store in opened:
        store.close()


@pytest.fixture
def records(another: Open) -> RecordStore:
    """A store, empty at first."""
    return another()
