"""What the processes of a job print becomes records: every line once, in order, without secrets."""

import os
from pathlib import Path

from evolverpc_common.redaction import REDACTED, Secrets
from gepa_service.jobs.job_logs import LONGEST_LINE, JobLogs


def sent(logs: JobLogs) -> list[str]:
    """What was read and not sent before."""
    found = [line.text for each in logs.unsent for line in each.lines]
    logs.sent(logs.unsent)
    return found


def test_lines_are_read_once_when_they_are_complete_and_secrets_are_taken_out(tmp_path: Path) -> None:
    file = tmp_path / "job.log"
    file.write_text("of an earlier attempt\n" * 400_000)
    logs = JobLogs({"job": file}, Secrets(["sk-0123456789", "-----BEGIN\nline-of-the-key\n"], declared=True))
    logs.add("attempt 2 begins")
    with file.open("a") as printed:
        printed.write("one sk-0123456789\ntwo line-of-the-key\nthr")
        printed.flush()
        logs.read()
        assert sent(logs) == ["attempt 2 begins", f"one {REDACTED}", f"two {REDACTED}"]
        printed.write("ee\n" + "x" * (LONGEST_LINE - 5) + "sk-0123456789")
    logs.read()
    logs.read(last=True)
    assert sent(logs) == ["three", ("x" * (LONGEST_LINE - 5) + REDACTED)[:LONGEST_LINE]]


def test_a_link_or_a_pipe_in_place_of_a_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "private").write_text("of another\n")
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    logs = JobLogs({"driver": link, "job": pipe}, Secrets())
    link.symlink_to(tmp_path / "private")
    os.mkfifo(pipe)
    logs.read(last=True)
    assert logs.unsent == ()
