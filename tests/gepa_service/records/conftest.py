"""Both stores of records, each a real one: a SQLite file, and a MongoDB server spoken to over TCP."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gepa_service.records import RecordStore, open_records
from tests.gepa_client.journal.conftest import mongo_server, mongo_url, opened_again

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
    yield from opened_again(lambda: open_records(url))


@pytest.fixture
def records(another: Open) -> RecordStore:
    """A store, empty at first."""
    return another()
