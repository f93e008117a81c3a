"""The queries in the guide find the runs that it describes, and its table has the fields and types of each store."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from gepa_client.journal.entries import StoredRun
from gepa_client.journal.store import Store, open_store
from tests.docs import pages
from tests.gepa_client.journal.mongo_process import MongoProcess

PAGE = "docs/guides/long-runs.md"
HIDDEN = {"output", "driver", "claim"}
"""Fields for evolverpc alone."""

PROMPT = "Answer with a label."
TYPES = {"text": str, "JSON": str, "string": str, "document": dict, "date": datetime}
"""What the drivers of the databases return for the types in the table."""


def run(run_id: str, day: int, score: float, calls: int, program: str = "support") -> StoredRun:
    return StoredRun(
        id=run_id,
        name="a name",
        program=program,
        status="completed",
        reason="max_metric_calls of 2000 is reached",
        config={"max_metric_calls": 2000},
        identity={"gepa": "0.1.4"},
        counters={"metric_calls": calls},
        best={"index": 1, "score": score, "texts": {"qa.prompt": PROMPT}},
        parent={"run": "other", "at": 3},
        started=f"2026-01-{day:02}T12:00:00.000+00:00",
        completed=f"2026-01-{day:02}T13:00:00.000+00:00",
    )


def fill(store: Store) -> None:
    with closing(store):
        store.create(run("early", 1, 0.9, 1500))
        store.create(run("late", 3, 0.81, 1001))
        store.create(run("bad", 2, 0.8, 1500))
        store.create(run("short", 2, 0.9, 1000))
        store.create(run("another program", 2, 0.9, 1500, program="other"))


@pytest.fixture(scope="module")
def mongo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A MongoDB with these runs."""
    process = MongoProcess(tmp_path_factory.mktemp("mongo"))
    fill(open_store(process.url))
    yield process.url
    process.kill()


def columns() -> Iterator[tuple[str, str, str]]:
    """Yield each field of the guide's table with its types in SQLite and in MongoDB."""
    for names, sqlite_type, mongo_type in re.findall(
        r"^\| (`.*?) \| (\w+) \| (\w+) \|", pages.text(PAGE), re.MULTILINE
    ):
        for name in re.findall(r"`(\w+)`", names.partition(", in MongoDB")[0]):
            yield name, sqlite_type, mongo_type


def test_the_sql_of_the_guide_finds_the_runs_it_describes(tmp_path: Path) -> None:
    fill(open_store(str(tmp_path / "store.db")))
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        found = connection.execute(pages.block(PAGE, "SELECT").text).fetchall()
        assert [(run_id, score, prompt) for run_id, _, score, prompt in found] == [
            ("late", 0.81, PROMPT),
            ("early", 0.9, PROMPT),
        ]
        assert connection.execute("SELECT datetime(started) FROM runs WHERE id = 'late'").fetchone() == (
            "2026-01-03 12:00:00",
        )


def test_the_python_of_the_guide_finds_the_runs_it_describes(mongo: str) -> None:
    code = pages.block(PAGE, "from pymongo").text.replace("mongodb://127.0.0.1:27017", mongo)
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 - the page's own code
    found = list(names["found"])
    assert [document["_id"] for document in found] == ["late", "early"]
    assert found[0]["best"] == {"index": 1, "score": 0.81, "texts": {"qa%2Eprompt": PROMPT}}
    assert found[0]["started"] == datetime(2026, 1, 3, 12)
    names["runs"].database.client.close()


def test_the_table_of_the_guide_has_every_field_with_its_types(tmp_path: Path, mongo: str) -> None:
    described = {name: (sqlite_type, mongo_type) for name, sqlite_type, mongo_type in columns()}
    assert described.keys() == {field.name for field in fields(StoredRun)} - HIDDEN
    fill(open_store(str(tmp_path / "store.db")))
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection, MongoClient[dict[str, Any]](mongo) as client:
        connection.row_factory = sqlite3.Row
        row = connection.execute("SELECT * FROM runs WHERE id = 'late'").fetchone()
        document = client["evolverpc"]["runs"].find_one({"_id": "late"})
        assert document is not None
        for name, (sqlite_type, mongo_type) in described.items():
            assert isinstance(row[name], TYPES[sqlite_type]), name
            assert isinstance(document["_id" if name == "id" else name], TYPES[mongo_type]), name
            if sqlite_type == "JSON":
                assert connection.execute("SELECT json_valid(?)", [row[name]]).fetchone()[0] == 1, name
