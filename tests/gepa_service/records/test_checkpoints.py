"""Checkpoints are made beside the commits: the log stays bounded, and what was committed reaches the file."""

from contextlib import closing
from pathlib import Path

from gepa_client.journal.checkpoints import LONGEST_LOG
from gepa_service.model.work import Work
from gepa_service.records.open_records import open_records
from gepa_service.records.record import new_id

PAGE_BYTES = 4096


def job(text: str = "") -> Work:
    return Work(tenant="acme", id=new_id("job"), repo_url="/srv/program", created_by="key:ann", settings={"text": text})


def test_the_log_stays_bounded_while_records_are_written(tmp_path: Path) -> None:
    log = tmp_path / "records.db-wal"
    with closing(open_records(str(tmp_path / "records.db"))) as records:
        for _ in range(200):
            records.insert(job("x" * 200_000))
        assert log.stat().st_size < 5 * LONGEST_LOG * PAGE_BYTES
        assert records.count(Work, "acme") == 200
