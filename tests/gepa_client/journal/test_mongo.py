"""What is particular to a store behind a network: secrets in its URL, restarts, lost replies."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from pymongo import MongoClient
from pymongo.collection import Collection

from gepa_client.errors import JournalError, NumberTaken, StoreUnavailable, StoreVersionDiffers
from gepa_client.journal.database import SCHEMA_VERSION
from gepa_client.journal.entries import SEARCH
from gepa_client.journal.mongo import MongoDatabase, without_secrets
from gepa_client.journal.soundness import damage
from gepa_client.journal.store import Store, open_store
from tests.gepa_client.journal.cutting_proxy import CuttingProxy
from tests.gepa_client.journal.mongo_process import MongoProcess
from tests.gepa_client.journal.sample_runs import OWNER, RUN, driven, ended, entry, sent
from tests.support.waiting import until

WAIT_S = 40.0
UNUSED = "127.0.0.1:1"  # a port where nothing listens


@pytest.fixture
def process(tmp_path: Path) -> Iterator[MongoProcess]:
    """A server that keeps its data on disk."""
    made = MongoProcess(tmp_path, in_memory=False)
    yield made
    made.kill()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("mongodb://me:secret@h/d", "mongodb://h/d"),
        ("mongodb://me:se%40cret@h1:1,h2:2/d?replicaSet=r&w=1", "mongodb://h1:1,h2:2/d?replicaSet=r&w=1"),
        ("mongodb+srv://me:secret@h/?tlsCertificateKeyFilePassword=secret", "mongodb+srv://h/"),
        ("mongodb://me:se/c@ret@h/d?authSource=admin", "mongodb://h/d?authSource=admin"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert without_secrets(url) == shown


def test_an_unreachable_server_is_reported_soon_and_without_the_password() -> None:
    begun = time.monotonic()
    with pytest.raises(StoreUnavailable, match=UNUSED) as caught:
        MongoDatabase(f"mongodb://me:secret@{UNUSED}/runs")
    assert time.monotonic() - begun < 15
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "rest",
    ["me:se/cret@h/d", "me:secret@h:port/d", "me:secret@h/d?tls=maybe", "h/d?tlsCertificateKeyFilePasswrd=secret"],
)
def test_a_url_that_will_not_do_is_an_error_without_the_password(rest: str) -> None:
    with pytest.raises(JournalError, match="not a usable MongoDB URL") as caught:
        MongoDatabase(f"mongodb://{rest}")
    assert "cret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_store_of_another_version_is_refused(mongo_url: str) -> None:
    MongoDatabase(mongo_url).close()
    with MongoClient[dict[str, object]](mongo_url) as client:
        client.get_default_database()["store"].update_one({"_id": "schema"}, {"$set": {"version": SCHEMA_VERSION + 1}})
    with pytest.raises(StoreVersionDiffers, match=rf"this evolverpc, .*, reads version {SCHEMA_VERSION}"):
        MongoDatabase(mongo_url)


def test_restarts_of_the_server_lose_nothing_and_repeat_nothing(process: MongoProcess) -> None:
    store = open_store(f"{process.url}/runs")
    driven(store)
    written = threading.Semaphore(0)
    failures: list[BaseException] = []

    def write() -> None:
        try:
            for number in range(60):
                store.write(RUN.id, OWNER, [sent(number), ended(number), entry(number)])
                store.beat(RUN.id, OWNER, {"counters": {"iteration": number}})
                written.release()
        except BaseException as error:  # the test reports it
            failures.append(error)
            raise

    writer = threading.Thread(target=write)
    writer.start()
    for _ in range(3):
        for _ in range(10):
            assert written.acquire(timeout=WAIT_S)
        process.kill()
        assert process.start()
    writer.join(WAIT_S)
    assert failures == []
    assert store.entries(RUN.id, SEARCH) == [entry(number) for number in range(60)]
    assert [spent.attempts for spent in store.spending(RUN.id)] == [60]
    assert store.run(RUN.id).counters == {"iteration": 59}
    store.close()


def test_an_absent_server_is_an_error_and_the_write_can_be_repeated(process: MongoProcess) -> None:
    with closing(Store(MongoDatabase(f"{process.url}/runs", patience_s=0.5))) as store:
        driven(store)
        process.kill()
        with pytest.raises(StoreUnavailable, match="does not answer"):
            store.write(RUN.id, OWNER, [sent(0), entry(0)])
        assert process.start()

        def written() -> bool:
            with suppress(StoreUnavailable):
                store.write(RUN.id, OWNER, [sent(0), entry(0)])
                return True
            return False

        until(written, WAIT_S)
        assert store.entries(RUN.id, SEARCH) == [entry(0)]


@pytest.mark.parametrize(
    "lost", [b"entries", *(pytest.param(each, marks=pytest.mark.long) for each in (b"attempts", b"chunks"))]
)
def test_a_write_whose_response_was_lost_differs_from_a_foreign_one(process: MongoProcess, lost: bytes) -> None:
    with (
        CuttingProxy(process.port) as proxy,
        closing(open_store(f"{proxy.url.replace('http', 'mongodb')}/runs")) as store,
    ):
        driven(store)
        long = entry(1, os.urandom(3_000_000))
        proxy.cut = lost
        store.write(RUN.id, OWNER, [sent(0), ended(0), entry(0), long])
        assert proxy.cuts == 1
        assert store.entries(RUN.id, SEARCH) == [entry(0), long]
        assert [attempt.outcome for attempt in store.attempts(RUN.id, SEARCH)] == ["ok"]
        store.update(RUN.id, {})
        assert store.claim(RUN.id, store.run(RUN.id).claim, "another", "pid 2")
        with pytest.raises(NumberTaken):
            store.write(RUN.id, "another", [entry(0)])


def test_a_writer_killed_before_it_ends_attempts_has_written_their_entries(
    mongo_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    store = open_store(mongo_url)
    driven(store)
    store.write(RUN.id, OWNER, [sent(0)])
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Collection, "bulk_write", killed)  # what ends attempts
        store.write(RUN.id, OWNER, [ended(0), entry(0)])
    assert store.entries(RUN.id, SEARCH) == [entry(0)]
    assert [attempt.outcome for attempt in store.attempts(RUN.id, SEARCH)] == [None]
    assert store.writers(RUN.id) == {}
    assert damage(store, RUN.id) is None
    store.close()
