"""Every store there is, each a real one: a SQLite file, a MongoDB server over TCP, and the API of a service."""

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from gepa_client.journal.http_store import TOKEN_FILE_VARIABLE
from gepa_client.journal.store import Store, open_store
from gepa_service.api.routes.processes import own_job
from gepa_service.auth.permissions import Principal
from gepa_service.records import open_records
from tests.gepa_client.journal.mongo_process import MongoProcess
from tests.gepa_service.serving import served, service_of

Open = Callable[[], Store]

DATABASES = ("sqlite", "mongo")
"""The stores that list their runs, and whose data a test can change behind their back."""

EVERY = (*DATABASES, "http")
"""For the parts of the contract that are tested with all stores in every run."""


@pytest.fixture(scope="session")
def mongo_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server: the one of `MONGODB_URI`, else one that ends with the tests."""
    if given := os.environ.get("MONGODB_URI"):
        yield given
        return
    process = MongoProcess(tmp_path_factory.mktemp("mongo"))
    yield process.url
    process.kill()


@pytest.fixture
def mongo_url(mongo_server: str) -> Iterator[str]:
    """A database of the test's own, gone with it."""
    scheme, _, rest = mongo_server.partition("://")
    place, _, options = rest.partition("?")
    name = f"evolverpc_{uuid.uuid4().hex}"
    yield f"{scheme}://{place.partition('/')[0]}/{name}{'?' if options else ''}{options}"
    with MongoClient[dict[str, object]](mongo_server) as client:
        client.drop_database(name)


@pytest.fixture
def api_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A service over a SQLite file, whose only token opens the run of every job: a test has several runs."""
    token = tmp_path / "token"
    token.write_text("the token")
    monkeypatch.setenv(TOKEN_FILE_VARIABLE, str(token))
    optimizer = Principal("tenant", "job", "job:any", "any")
    records = open_records(str(tmp_path / "records.db"))
    service = service_of(
        records,
        str(tmp_path / "behind" / "store.db"),
        lambda given, _=None: optimizer if given == "the token" else None,
    )
    with served(service, lambda app: app.dependency_overrides.update({own_job: lambda job_id: job_id})) as url:
        yield url
    records.close()


LONG_STORES = tuple(pytest.param(kind, marks=pytest.mark.long) for kind in ("mongo", "http"))


@pytest.fixture(params=["sqlite", *LONG_STORES])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an empty store is; the test runs once for each kind, with a service and MongoDB in the long run."""
    if request.param == "sqlite":
        return str(tmp_path / "deep" / "store.db")
    url: str = request.getfixturevalue("mongo_url" if request.param == "mongo" else "api_url")
    return url


def opened_again(open_one: Callable[[], Any]) -> Iterator[Callable[[], Any]]:
    """Yield a function that opens one more; all are closed at the end."""
    with ExitStack() as opened:
        yield lambda: opened.enter_context(closing(open_one()))


@pytest.fixture
def another(store_url: str) -> Iterator[Open]:
    """Opens the same store again, as another process would."""
    yield from opened_again(lambda: open_store(store_url))


@pytest.fixture
def store(another: Open) -> Store:
    """A store, empty at first."""
    return another()
