"""Stores that earlier versions of gepa-client wrote open, and their runs resume.

Version 1: entries have no checksums. Version 2: a run's `requested_action` has another name.
"""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

import pytest

from gepa_client.journal.entries import SEARCH
from gepa_client.journal.records import SCHEMA_VERSION
from gepa_client.journal.soundness import damage
from gepa_client.journal.sqlite import SqliteStore
from tests.gepa_client.conftest import Ran
from tests.gepa_client.run_folder import stored
from tests.gepa_client.word_program import Script, rows, scored

STORES = Path(__file__).parents[1] / "journal" / "stores"
SEARCHED = 72
"""Entries of the search that each of them holds."""

Serve = Callable[[Script], str]
Cli = Callable[..., Ran]


@pytest.mark.parametrize("written_by", [1, 2])
def test_a_run_of_an_older_store_resumes_and_pays_for_nothing_again(
    written_by: int, serve: Serve, cli: Cli, tmp_path: Path
) -> None:
    path = tmp_path / "runs" / "evolverpc.db"
    path.parent.mkdir()
    shutil.copy(STORES / f"version_{written_by}.db", path)
    with stored(tmp_path) as (store, run_id):
        identity = store.run(run_id).identity
        assert identity is not None
        store.update(run_id, {"identity": {**identity, "gepa": version("gepa")}})
        assert damage(store, run_id) is None
        assert len(store.entries(run_id, SEARCH)) == SEARCHED
    words = Script(datasets={"train": rows(30), "val": rows(12, 100)}, evaluate=scored)
    more = cli("resume", "last", serve(words), "--max-metric-calls", 120, "--json")
    assert more.status == 0, more.stdout + more.stderr
    assert more.event("started")["resumed"]
    with stored(tmp_path) as (store, run_id):
        new = [entry for entry in store.entries(run_id, SEARCH, SEARCHED) if entry.kind == "evaluate"]
        assert len(words.calls("evaluate")) == len(new) > 0
        assert sum(store.chains(run_id).values()) >= len(new)
        assert damage(store, run_id) is None
        assert store.run(run_id).status == "completed"
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)


def test_an_action_requested_in_a_store_of_version_2_is_known_after_the_upgrade(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    shutil.copy(STORES / "version_2.db", path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE runs SET wish = 'cancel'")
    store = SqliteStore(path)
    assert [run.requested_action for run in store.runs()] == ["cancel"]
    store.close()
