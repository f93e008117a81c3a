"""Stores that earlier versions of gepa-client wrote open, and their runs resume.

Version 1: entries have no checksums. Version 2: a run's `requested_action` has another name. Version 3: a run has no
`program`, `started` and `completed`; in MongoDB its JSON and its times are text. Version 4: there are no requests of
users, and a candidate cannot be dropped.
"""

import shutil
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from bson import json_util
from pymongo import MongoClient

from gepa_client.journal import Store, open_store
from gepa_client.journal.entries import SEARCH
from gepa_client.journal.mongo_rows import upgrade_runs
from gepa_client.journal.records import SCHEMA_VERSION, TIME_FIELDS
from gepa_client.journal.soundness import damage
from tests.gepa_client.conftest import Ran
from tests.gepa_client.journal.conftest import DATABASES
from tests.gepa_client.word_program import Script, rows, scored

STORES = Path(__file__).parent / "stores"
SEARCHED = 72
"""Entries of the search that each of them holds."""

Serve = Callable[[Script], str]
Cli = Callable[..., Ran]
Open = Callable[[], Store]


def load(url: str, written_by: int, status: str = "completed") -> None:
    """Put an older store in place, its run in this status."""
    if url.startswith("mongodb:"):
        documents = json_util.loads((STORES / f"version_{written_by}.mongo.json").read_text())
        with MongoClient[dict[str, Any]](url) as client:
            for name, found in documents.items():
                client.get_default_database()[name].insert_many(found)
            client.get_default_database()["runs"].update_many({}, {"$set": {"status": status}})
        return
    Path(url).parent.mkdir(parents=True)
    shutil.copy(STORES / f"version_{written_by}.db", url)
    with closing(sqlite3.connect(url)) as connection, connection:
        connection.execute("UPDATE runs SET status = ?", [status])


def schema_of(url: str) -> int:
    """Return the version that a store is marked with."""
    if url.startswith("mongodb:"):
        with MongoClient[dict[str, Any]](url) as client:
            found = client.get_default_database()["store"].find_one({"_id": "schema"})
            return 0 if found is None else int(found["version"])
    with closing(sqlite3.connect(url)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def only(store: Store) -> str:
    [run] = store.runs()
    return run.id


@pytest.mark.parametrize(
    ("written_by", "store_url"),
    [(1, "sqlite"), (2, "sqlite"), (3, "sqlite"), (4, "sqlite"), (3, "mongo"), (4, "mongo")],
    indirect=["store_url"],
)
def test_a_run_of_an_older_store_resumes_and_pays_for_nothing_again(
    written_by: int, store_url: str, another: Open, serve: Serve, cli: Cli
) -> None:
    load(store_url, written_by)
    store = another()
    run_id = only(store)
    before = store.run(run_id)
    assert before.status == "completed"
    if written_by < 4:
        assert (before.started, before.completed) == (before.created, before.updated)
    assert before.identity is not None
    assert store.requests(run_id) == []
    assert {kept.dropped for kept in store.candidates(run_id)} == {None}
    store.update(run_id, {"identity": {**before.identity, "gepa": version("gepa")}})
    assert damage(store, run_id) is None
    assert len(store.entries(run_id, SEARCH)) == SEARCHED
    words = Script(datasets={"train": rows(30), "val": rows(12, 100)}, evaluate=scored)
    more = cli("resume", "last", serve(words), "--max-metric-calls", 120, "--store", store_url, "--json")
    assert more.status == 0, more.stdout + more.stderr
    assert more.event("started")["resumed"]
    new = [entry for entry in store.entries(run_id, SEARCH, SEARCHED) if entry.kind == "evaluate"]
    assert len(words.calls("evaluate")) == len(new) > 0
    assert sum(store.chains(run_id).values()) >= len(new)
    assert damage(store, run_id) is None
    after = store.run(run_id)
    assert (after.status, after.program, after.started) == ("completed", "scripted", before.started)
    assert (after.completed or "") > (before.completed or "")
    assert schema_of(store_url) == SCHEMA_VERSION


def test_an_action_requested_in_a_store_of_version_2_is_known_after_the_upgrade(tmp_path: Path) -> None:
    path = str(tmp_path / "runs" / "store.db")
    load(path, 2)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE runs SET wish = 'cancel'")
    with closing(open_store(path)) as store:
        assert [run.requested_action for run in store.runs()] == ["cancel"]


@pytest.mark.parametrize(
    ("status", "started", "completed"),
    [("pending", False, False), ("running", True, False), ("paused", True, False), ("failed", True, True)],
)
@pytest.mark.parametrize("store_url", DATABASES, indirect=True)
def test_runs_of_version_3_get_times_that_fit_their_status(
    store_url: str, another: Open, status: str, started: bool, completed: bool
) -> None:
    load(store_url, 3, status)
    [run] = another().runs()
    assert run.started == (run.created if started else None)
    assert run.completed == (run.updated if completed else None)


@pytest.mark.parametrize("store_url", DATABASES, indirect=True)
def test_processes_that_open_an_older_store_at_once_upgrade_it_once(store_url: str, another: Open) -> None:
    load(store_url, 3)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: another().runs(), range(4)))
    assert all(runs == found[0] for runs in found)
    assert found[0][0].config["max_metric_calls"] == 60


def test_a_driver_of_version_3_that_still_writes_does_not_hide_its_run(mongo_url: str) -> None:
    load(mongo_url, 3)
    open_store(mongo_url).close()
    late = {"counters": '{"iteration":7}', "updated": "2027-01-01T00:00:00.000+00:00"}
    with MongoClient[dict[str, Any]](mongo_url) as client:
        client.get_default_database()["runs"].update_many({}, {"$set": late})
    with closing(open_store(mongo_url)) as store:
        [run] = store.runs()
    assert (run.counters, run.updated) == ({"iteration": 7}, late["updated"])


def test_an_upgrade_repeats_a_run_whose_settings_a_driver_of_version_3_wrote_after_it(mongo_url: str) -> None:
    load(mongo_url, 3)
    with closing(open_store(mongo_url)) as store:
        [before] = store.runs()
    with MongoClient[dict[str, Any]](mongo_url) as client:
        runs = client.get_default_database()["runs"]
        [found] = runs.find()
        moments = {name: datetime.fromisoformat(getattr(before, name)) for name in TIME_FIELDS}
        runs.delete_many({})
        runs.insert_one(found | moments | {"config": '{"seed":7}'})
        upgrade_runs(runs)
    with closing(open_store(mongo_url)) as store:
        [run] = store.runs()
    assert run == replace(before, config={"seed": 7})
