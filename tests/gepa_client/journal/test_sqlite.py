"""What is particular to a store in a file: its rights, its locks, its disk, and files that are something else."""

import os
import resource
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from gepa_client.errors import JournalError, StoreUnavailable, StoreVersionDiffers
from gepa_client.journal.database import SCHEMA_VERSION
from gepa_client.journal.entries import SEARCH, Row
from gepa_client.journal.sqlite import SqliteDatabase
from gepa_client.journal.store import Store
from tests.gepa_client.journal.sample_runs import OWNER, RUN, driven, ended, entry, sent

WAIT_S = 30.0
FULL = 600_000
WRITERS = 3


def test_only_its_owner_may_read_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "store.db"
    store = Store(SqliteDatabase(path))
    driven(store)
    files = sorted(path.parent.iterdir())
    assert [file.name for file in files] == ["store.db", "store.db-shm", "store.db-wal"]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    store.close()
    assert list(path.parent.iterdir()) == [path], "one file is left"


@pytest.mark.parametrize("version", [SCHEMA_VERSION - 1, SCHEMA_VERSION + 1])
def test_a_store_of_another_version_is_refused_and_left_alone(tmp_path: Path, version: int) -> None:
    path = tmp_path / "store.db"
    SqliteDatabase(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(
        StoreVersionDiffers,
        match=rf"version {version}, written by evolverpc .*; this evolverpc, .*, reads version {SCHEMA_VERSION}",
    ):
        SqliteDatabase(path)
    assert path.read_bytes() == before


def test_a_database_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "photos.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE photos (name TEXT)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(JournalError, match=r"photos\.db is a database of something else"):
        SqliteDatabase(path)
    assert path.read_bytes() == before


def test_a_file_locked_for_long_is_named_and_the_write_can_be_repeated(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = Store(SqliteDatabase(path, patience_s=0.1))
    driven(store)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match=r"store\.db is locked"):
        store.write(RUN.id, OWNER, [sent(0), entry(0)])
    assert store.entries(RUN.id, SEARCH) == [], "reads continue"
    other.execute("ROLLBACK")
    other.close()
    store.write(RUN.id, OWNER, [sent(0), entry(0)])
    assert store.entries(RUN.id, SEARCH) == [entry(0)]
    store.close()


def test_a_full_disk_loses_nothing_and_the_write_can_be_repeated(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    rows: list[Row] = [sent(0), entry(0), entry(1, os.urandom(FULL))]  # no compression helps
    with closing(Store(SqliteDatabase(path))) as store:
        driven(store)
        with no_file_beyond(FULL), pytest.raises(StoreUnavailable, match=str(path)):
            store.write(RUN.id, OWNER, rows)
        assert store.entries(RUN.id, SEARCH) == [], "the failed write left nothing of itself"
        store.write(RUN.id, OWNER, rows)
        assert len(store.entries(RUN.id, SEARCH)) == 2


@contextmanager
def no_file_beyond(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond `size` bytes, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_several_writers_open_and_write_one_new_file_at_once(tmp_path: Path) -> None:
    path, ready = tmp_path / "store.db", threading.Barrier(WRITERS)

    def write(run_id: str) -> None:
        ready.wait(WAIT_S)
        with closing(Store(SqliteDatabase(path))) as own:
            driven(own, run_id)
            for number in range(20):
                own.write(run_id, OWNER, [sent(number), ended(number), entry(number)])

    names = [f"run-{index}" for index in range(WRITERS)]
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(write, names))
    with closing(Store(SqliteDatabase(path))) as store:
        assert {run.id: store.parts(run.id) for run in store.runs()} == {name: {SEARCH: 20} for name in names}
