"""What an attempt records of a job whose process has ended."""

from collections.abc import Callable
from typing import Any

import pytest

from evolverpc_common.git import GitError
from gepa_service.jobs import kept_results
from gepa_service.jobs.attempt_records import MOST_SETBACKS, AttemptRecords
from gepa_service.jobs.kept_results import TRIES_OF_CODE
from gepa_service.jobs.messages import Ended, Report
from gepa_service.model.program_version import Program
from gepa_service.model.work import Work
from gepa_service.records import RecordStore, RecordsUnavailable, new_id
from tests.gepa_client.journal.sample_runs import run
from tests.gepa_service.platform import Platform


def attempted(service: Platform, process: Callable[[AttemptRecords, str], Ended], setbacks: int = 0) -> Work:
    """Return the job after an attempt in whose place `process` stands, which gets the id of the job's run."""
    given: dict[str, Any] = {"status": "running", "attempts": 2, "setbacks": setbacks}
    job = Work(tenant="acme", id=new_id("job"), repo_url=str(service.folder), created_by="k", **given)
    service.records.insert(job)
    service.journals.create(run(job.id, counters={"metric_calls": 5, "spent_usd": 1.5}))
    attempt = AttemptRecords(service.parts(), "acme", job.id, 2)
    if attempt.begin() is not None:
        attempt.report(Report(message=process(attempt, job.id)))
    return service.get(job)


@pytest.mark.parametrize(("calls", "status", "setbacks"), [(5, "failed", MOST_SETBACKS), (6, "pending", 1)])
def test_setbacks_count_from_where_the_job_got_last(service: Platform, calls: int, status: str, setbacks: int) -> None:
    def process(_: AttemptRecords, run_id: str) -> Ended:
        service.journals.update(run_id, {"counters": {"metric_calls": calls}})
        return Ended(status="interrupted", reason="the server was lost")

    job = attempted(service, process, MOST_SETBACKS)
    assert (job.status, job.setbacks, job.not_before is not None) == (status, setbacks, status == "pending")


@pytest.mark.parametrize(("calls", "setbacks"), [(5, 3), (6, 0)])
def test_setbacks_before_a_job_got_further_do_not_count_if_its_attempt_dies(
    service: Platform, calls: int, setbacks: int
) -> None:
    def process(attempt: AttemptRecords, run_id: str) -> Ended:
        service.journals.update(run_id, {"counters": {"metric_calls": calls}})
        attempt.report(Report(progress=True))
        found = service.records.get(Work, "acme", run_id)
        assert found is not None
        assert found.setbacks == setbacks
        return Ended(status="paused")

    assert attempted(service, process, 3).status == "paused"


def test_a_job_whose_attempts_ended_too_often_fails_without_a_further_process(service: Platform) -> None:
    def process(_: AttemptRecords, _run_id: str) -> Ended:
        raise AssertionError("a process was started")

    job = attempted(service, process, MOST_SETBACKS + 1)
    assert (job.status, "its attempts ended" in (job.reason or "")) == ("failed", True)
    assert (job.failure or {})["kind"] == "run"


@pytest.mark.parametrize(("setbacks", "status"), [(0, "pending"), (TRIES_OF_CODE, "completed")])
def test_a_job_whose_code_cannot_be_read_is_tried_again_and_completes_without_it_at_last(
    service: Platform, monkeypatch: pytest.MonkeyPatch, setbacks: int, status: str
) -> None:
    def with_code(*_: object) -> Program:
        raise GitError("the remote is gone")

    made = Program(tenant="acme", id="program_a", job_id="job_a", texts={}, line="l", repo_url="r")
    service.records.insert(made)  # by an attempt that ended before it wrote the job
    monkeypatch.setattr(kept_results, "program_of", lambda *_: made)
    monkeypatch.setattr(kept_results, "with_code", with_code)
    job = attempted(service, lambda *_: Ended(status="completed"), setbacks)
    assert job.status == status


def test_the_end_of_a_job_is_recorded_once_the_database_is_there_again(
    service: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, away = RecordStore.replace, iter(range(5))

    def unavailable(store: RecordStore, record: Any) -> Any:
        if next(away, None) is not None:
            raise RecordsUnavailable("it is away")
        return replace(store, record)

    def process(_: AttemptRecords, _run_id: str) -> Ended:
        monkeypatch.setattr(RecordStore, "replace", unavailable)
        return Ended(status="failed", reason="it cannot run", failure={"kind": "run", "message": "it cannot run"})

    assert attempted(service, process).status == "failed"
    assert next(away, None) is None
