"""Checkpoints are made beside the commits: the log stays bounded, and what was committed reaches the file."""

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from gepa_service.model.job import Job
from gepa_service.records import checkpoints
from gepa_service.records.checkpoints import LONGEST_LOG
from gepa_service.records.record import new_id
from gepa_service.records.sqlite import SqliteRecords
from tests.faults.execution_log import until

PAGE_BYTES = 4096


def job(text: str = "") -> Job:
    return Job(tenant="acme", id=new_id("job"), repo_url="/srv/program", created_by="key:ann", settings={"text": text})


def test_the_log_stays_bounded_while_records_are_written(tmp_path: Path) -> None:
    log = tmp_path / "records.db-wal"
    with closing(SqliteRecords(tmp_path / "records.db")) as records:
        for _ in range(200):
            records.insert(job("x" * 200_000))
        assert log.stat().st_size < 5 * LONGEST_LOG * PAGE_BYTES
        assert records.count(Job, "acme") == 200


def test_a_single_commit_reaches_the_file_of_the_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "LATEST_S", 0.01)
    with closing(SqliteRecords(tmp_path / "records.db")) as records:
        made = job()
        records.insert(made)

        def is_there() -> bool:
            copy = tmp_path / "copy" / "records.db"
            shutil.rmtree(copy.parent, ignore_errors=True)
            copy.parent.mkdir()
            shutil.copy(tmp_path / "records.db", copy)
            with closing(SqliteRecords(copy)) as copied:
                return copied.get(Job, "acme", made.id) == made

        until(is_there, "the commit to be in the file")
