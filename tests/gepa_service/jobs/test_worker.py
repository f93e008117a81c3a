"""A worker runs jobs to their ends, and leaves them whole when it is stopped."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gepa_service.jobs import attempt, control
from gepa_service.model.job import Job
from tests.faults.execution_log import executions, until
from tests.gepa_service.platform import (
    Platform,
    platform,
    processes_of,
    word_repository,
    word_settings,
    working,
)
from tests.sandbox_runtime.source.repositories import commit


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Platform]:
    with platform(tmp_path) as opened:
        yield opened


def slow(service: Platform, folder: Path, slower: int = 10, **given: Any) -> Job:
    """A job whose examples take long enough for something to happen meanwhile."""
    settings = word_settings(folder / "log", metric_calls=200, slower=slower)
    return service.submit(word_repository(folder / "repo"), {**settings, **given})


def begun(job: Job) -> bool:
    return job.progress.metric_calls > 10


def test_a_cancelled_job_ends_at_once_and_its_token_with_it(service: Platform, tmp_path: Path) -> None:
    job = slow(service, tmp_path)
    with working(service.parts()):
        service.until(job, begun)
        token = (tmp_path / "jobs" / job.id / "token").read_text().strip()
        assert service.tokens.check(token) is not None
        cancelled = control.cancel(service.of("acme"), service.journals, service.get(job), "key:ann")
        assert cancelled.status == "cancelled"
        assert service.tokens.check(token) is None
        until(lambda: not processes_of(job), "the processes of the job to end")
        rows = len(executions(tmp_path / "log"))
    assert len(executions(tmp_path / "log")) == rows
    assert service.journals.run(job.id).status == "cancelled"
    assert service.get(job).status == "cancelled"


def test_a_paused_job_continues_where_it_was_and_a_new_budget_reaches_it_while_it_runs(
    service: Platform, tmp_path: Path
) -> None:
    job = slow(service, tmp_path, slower=30)  # the rest takes longer than the way of the new budget
    acme = service.of("acme")
    with working(service.parts()):
        service.until(job, begun)
        control.pause(acme, service.journals, service.get(job), "key:ann")
        paused = service.until(job, lambda found: found.status == "paused")
        assert paused.claim is None
        assert not processes_of(job)
        before = service.journals.parts(job.id)["search"]
        control.set_budget(acme, service.journals, service.get(job), "key:ann", {"max_metric_calls": 150})
        control.resume(acme, service.journals, service.get(job), "key:ann")
        calls = paused.progress.metric_calls
        service.until(job, lambda found: found.attempts == 2 and found.progress.metric_calls > calls)
        control.set_budget(acme, service.journals, service.get(job), "key:ann", {"max_metric_calls": 60})
        ended = service.ended(job)
    assert ended.status == "completed", f"{ended!r}\n{service.log(job)}"
    assert ended.attempts == 2, ended.reason
    assert 60 <= ended.progress.metric_calls < 150
    assert service.journals.parts(job.id)["search"] > before


def test_a_program_that_fails_its_check_fails_the_job_with_its_errors(service: Platform, tmp_path: Path) -> None:
    repo = word_repository(tmp_path / "repo")
    commit(
        repo, {"program.py": (repo / "program.py").read_text() + "\ndef run(*_):\n    raise ValueError('no luck')\n"}
    )
    job = service.submit(repo, word_settings(tmp_path / "log"))
    with working(service.parts()):
        ended = service.ended(job)
    assert (ended.status, ended.progress.phase) == ("failed", "failed")
    assert ended.failure is not None
    assert ended.failure["kind"] == "preflight"
    assert "no luck" in str(ended.failure["check"]["examples"])
    assert service.journals.runs() == []


KILLS_ITS_SERVER = """

import pathlib, signal

usual = make_reflective_dataset

def make_reflective_dataset(*arguments):
    killed = pathlib.Path(KILLED)
    if not ONCE or not killed.exists():
        killed.touch()
        pid = os.getppid()
        while b"rpc_server.cli" not in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
            pid = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(pid, signal.SIGKILL)
    return usual(*arguments)
"""


@pytest.mark.parametrize("once", [pytest.param(True, marks=pytest.mark.long), False])
def test_a_job_whose_server_is_lost_in_its_check_is_tried_again_until_it_was_too_often(
    service: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, once: bool
) -> None:
    repo, killed = word_repository(tmp_path / "repo"), tmp_path / "killed"
    added = KILLS_ITS_SERVER.replace("KILLED", repr(str(killed))).replace("ONCE", str(once))
    commit(repo, {"program.py": (repo / "program.py").read_text() + added})
    monkeypatch.setattr(attempt, "MOST_SETBACKS", 1)
    job = service.submit(repo, word_settings(tmp_path / "log"))
    with working(service.parts()):
        ended = service.ended(job)
    assert killed.exists()
    assert ended.attempts == 2, ended.reason
    if once:
        assert ended.status == "completed", f"{ended!r}\n{service.log(job)}"
        return
    assert ended.status == "failed"
    assert ended.failure is not None
    assert ended.failure["kind"] == "preflight"
    assert ended.failure["message"].startswith(
        "it was interrupted 2 times before it got any further, at last because: "
    )
    assert [example["status"] for example in ended.failure["check"]["examples"]] == ["ok"] * 6
    assert service.journals.runs() == []
