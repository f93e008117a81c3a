"""What the processes of a job print becomes records: every line once, in order, without secrets."""

import os
from pathlib import Path

from evolverpc_common.redaction import REDACTED, Secrets
from gepa_service.jobs.job_logs import LONGEST_LINE, JobLogs
from gepa_service.model.job_log import LogChunk
from gepa_service.model.work import Work
from gepa_service.records.store import RecordStore

JOB = Work(tenant="acme", id="job_1", repo_url="/r", created_by="key:x")


def lines(records: RecordStore) -> list[str]:
    return [line.text for chunk in records.page(LogChunk, "acme", {"job_id": "job_1"}) for line in chunk.lines]


def test_lines_are_recorded_once_when_they_are_complete_and_secrets_are_taken_out(
    records: RecordStore, tmp_path: Path
) -> None:
    file = tmp_path / "job.log"
    file.write_text("of an earlier attempt\n")
    logs = JobLogs(
        records, JOB, {"job": file}, Secrets(["sk-0123456789", "-----BEGIN\nline-of-the-key\n"], declared=True)
    )
    logs.add("attempt 2 begins")
    with file.open("a") as printed:
        printed.write("one sk-0123456789\ntwo line-of-the-key\nthr")
        printed.flush()
        logs.write()
        assert lines(records) == ["attempt 2 begins", f"one {REDACTED}", f"two {REDACTED}"]
        printed.write("ee\n" + "x" * (LONGEST_LINE - 5) + "sk-0123456789")
    logs.write(last=True)
    logs.write(last=True)
    assert sorted(lines(records)[3:]) == ["three", ("x" * (LONGEST_LINE - 5) + REDACTED)[:LONGEST_LINE]]


def test_a_link_or_a_pipe_in_place_of_a_file_is_not_read(records: RecordStore, tmp_path: Path) -> None:
    (tmp_path / "private").write_text("of another\n")
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    logs = JobLogs(records, JOB, {"driver": link, "job": pipe}, Secrets())
    link.symlink_to(tmp_path / "private")
    os.mkfifo(pipe)
    logs.write(last=True)
    assert lines(records) == []
