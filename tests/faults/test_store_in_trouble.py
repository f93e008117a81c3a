"""SQLite on a full disk or locked, MongoDB restarted: the run continues, or pauses with a reason and can be resumed."""

import ctypes
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from tests.faults.checking import Undisturbed, check
from tests.faults.conftest import Runs, Serve
from tests.faults.optimizing import LEASE_S, LONG_LEASE_S, PAUSED
from tests.faults.runs import Setup, seeded
from tests.faults.serving import PROCESSES
from tests.gepa_client.journal.mongo_process import MongoProcess

DISK_BYTES = 16 * 2**20


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of its own at `folder`; skips the test where this user may not mount one."""
    folder.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"size={DISK_BYTES}".encode()
    if libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, options) != 0:
        pytest.skip(f"no file system can be mounted here: {os.strerror(ctypes.get_errno())}")
    try:
        yield folder
    finally:
        libc.umount2(os.fsencode(folder), 2)  # MNT_DETACH: an open file does not keep it mounted


def fill(disk: Path) -> Path:
    """Use up all the room there is; returns the file to delete."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(2**20))
    with filler.open("ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(512))
    return filler


@pytest.mark.long
def test_a_full_disk_pauses_the_run_until_there_is_room(
    number: int, calm_run: Runs, shared_server: Serve, setup: Setup, expected: Undisturbed, tmp_path: Path
) -> None:
    moment = seeded("disk", number).randint(1, int(expected.lines * 0.8))
    with small_disk(tmp_path / "disk") as disk:
        made = calm_run(setup, [shared_server(setup.components).url], store=str(disk / "store.db"))
        driver = made.start()
        made.wait_for(moment)
        filler = fill(disk)
        ended = driver.wait()
        assert ended.status == PAUSED, str(ended)
        assert "no room left" in ended.reason
        filler.unlink()
        made.finish(made.resume())
        check(made, expected, lost_examples=PROCESSES, lost_calls=PROCESSES)


@contextmanager
def locked(store: str) -> Iterator[None]:
    """Keep other processes from writing."""
    with closing(sqlite3.connect(store, timeout=10, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        yield
        connection.execute("ROLLBACK")


def test_a_store_locked_beyond_the_lease_pauses_the_run(
    number: int, calm_run: Runs, shared_server: Serve, setup: Setup, expected: Undisturbed
) -> None:
    moment = seeded("long lock", number).randint(1, int(expected.lines * 0.8))
    made = calm_run(setup, [shared_server(setup.components).url])
    driver = made.start()
    made.wait_for(moment)
    with locked(made.store):
        time.sleep(2 * LEASE_S)
    ended = driver.wait()
    assert ended.status == PAUSED, str(ended)
    assert "sign of life" in ended.reason
    made.finish(made.resume())
    check(made, expected, lost_examples=PROCESSES, lost_calls=PROCESSES)


@pytest.mark.long
def test_a_mongodb_that_restarts_costs_nothing_but_time(
    number: int, calm_run: Runs, shared_server: Serve, setup: Setup, expected: Undisturbed, mongo: MongoProcess
) -> None:
    rng = seeded("mongo", number)
    moment = rng.randint(1, int(expected.lines * 0.8))
    made = calm_run(setup, [shared_server(setup.components).url], store=mongo.url, lease_s=LONG_LEASE_S)
    driver = made.start()
    made.wait_for(moment)
    mongo.kill()
    time.sleep(rng.uniform(0.0, 0.5))
    assert mongo.start()
    made.finish(driver)
    check(made, expected, lost_examples=PROCESSES, lost_calls=PROCESSES)
