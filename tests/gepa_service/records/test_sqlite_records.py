"""Records in SQLite: a full database, places of no database, and a kill; the rest is tested with the store of runs."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gepa_service.records.open_records import open_records
from gepa_service.records.store import RecordError, RecordStore, RecordsUnavailable
from tests.gepa_service.records.sample import Sample


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "records.db"


@pytest.fixture
def records(path: Path) -> Iterator[RecordStore]:
    opened = open_records(str(path))
    yield opened
    opened.close()


def sample(id_: str, **fields: object) -> Sample:
    return Sample(tenant="acme", id=id_, **fields)


def test_a_full_database_refuses_the_write_keeps_the_rest_and_recovers(records: RecordStore) -> None:
    records.insert(sample("s1"))
    connection = records._database._connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(RecordsUnavailable, match="full"):
        for number in range(1000):
            records.insert(sample(f"t{number}", detail={"long": "x" * 1000}))
    assert records.get(Sample, "acme", "s1") is not None
    assert records.count(Sample, "acme") == records.count(Sample, "acme", {"status": "new"})
    connection.execute("PRAGMA max_page_count = 100000")
    records.insert(sample("after"))
    assert records.get(Sample, "acme", "after") is not None


def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    content = b"no database at all" * 100
    path.write_bytes(content)
    with pytest.raises(RecordError):
        open_records(str(path))
    assert path.read_bytes() == content


@pytest.mark.parametrize("place", ["file/below.db", "folder"])
def test_a_place_where_no_file_can_be_is_an_error(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(RecordError):
        open_records(str(tmp_path / place))


KILLED = """
import os, sys
from pathlib import Path
from gepa_service.records.open_records import open_records
from tests.gepa_service.records.sample import Sample
records = open_records(sys.argv[1])
for number in range(1_000_000):
    records.insert(Sample(tenant="acme", id=f"{number:08}"))
    print(number, flush=True)
"""


def test_records_whose_insert_returned_survive_a_kill(path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]) as process:
        for _ in range(50):
            last = process.stdout.readline()
        process.kill()
        last = [last, *process.stdout.read().split()][-1]
    records = open_records(str(path))
    count = records.count(Sample, "acme")
    records.close()
    assert count in (int(last) + 1, int(last) + 2)
