"""A store of version 1 opens, and its run goes on: a file that gepa-client wrote before entries had checksums."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

from gepa_client.journal.entries import SEARCH
from gepa_client.journal.soundness import damage
from tests.gepa_client.conftest import Ran
from tests.gepa_client.run_folder import stored
from tests.gepa_client.words import Script, rows, scored

STORE = Path(__file__).parents[1] / "journal" / "stores" / "version_1.db"
SEARCHED = 72
"""Entries of the search that it holds."""

Serve = Callable[[Script], str]
Cli = Callable[..., Ran]


def test_a_run_of_a_store_of_version_1_is_resumed_and_pays_for_nothing_again(
    serve: Serve, cli: Cli, tmp_path: Path
) -> None:
    path = tmp_path / "runs" / "evolverpc.db"
    path.parent.mkdir()
    shutil.copy(STORE, path)
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
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)
