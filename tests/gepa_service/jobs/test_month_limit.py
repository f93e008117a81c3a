"""What work costs is added to the month of its tenant, once."""

from gepa_service.jobs import control
from gepa_service.jobs.attempt_records import AttemptRecords
from gepa_service.jobs.deletion import delete_work
from gepa_service.jobs.dispatcher import Queue
from gepa_service.jobs.messages import Ended, Report
from gepa_service.jobs.month_spending import usage_of
from gepa_service.model.tenant import Usage
from tests.gepa_client.journal.sample_runs import ended as ended_attempt
from tests.gepa_client.journal.sample_runs import sent
from tests.gepa_service.platform import Platform


def spent(service: Platform) -> tuple[float, int]:
    found = usage_of(service.records, "acme")
    return found.usd, found.unpriced


def test_what_a_job_costs_is_counted_as_it_runs_once_over_all_attempts_and_stays_if_it_is_deleted(
    service: Platform,
) -> None:
    job = service.begun("acme")
    first = AttemptRecords(service.parts(), "acme", job.id, 1)
    assert first.begin() is not None
    assert service.journals.claim(job.id, service.journals.run(job.id).claim, "driver", "driver")
    service.journals.write(job.id, "driver", [sent(0), ended_attempt(0, usage={"cost_usd": 1.0})])
    for _ in range(2):
        first.report(Report(progress=True))
    assert spent(service) == (1.0, 0)
    service.records.remove(Usage, "acme")  # the next month has begun
    service.journals.write(job.id, "driver", [sent(1), ended_attempt(1, usage={"cost_usd": 0.5}), sent(2)])
    service.journals.write(job.id, "driver", [ended_attempt(2, unpriced=1)])
    service.records.replace(service.get(job).model_copy(update={"status": "pending"}))  # the first has died
    assert Queue(service.records).take() is not None
    second = AttemptRecords(service.parts(), "acme", job.id, 2)
    assert second.begin() is not None
    assert (spent(service)[0], service.journals.run(job.id).claim.owner) == (0.5, None)
    second.report(Report(message=Ended(status="failed", failure={"kind": "run", "message": "m"})))
    ended = service.get(job)
    assert (ended.status, ended.cost_usd, spent(service)[0]) == ("failed", 1.5, 0.5)
    delete_work(service.records, service.journals, ended)
    assert spent(service)[0] == 0.5


def test_what_a_job_costs_until_its_process_has_ended_is_counted_after_it_was_cancelled(service: Platform) -> None:
    job = service.begun("acme")
    attempt = AttemptRecords(service.parts(), "acme", job.id, 1)
    assert attempt.begin() is not None
    assert service.journals.claim(job.id, service.journals.run(job.id).claim, "driver", "driver")
    service.journals.write(job.id, "driver", [sent(0), ended_attempt(0, usage={"cost_usd": 1.0})])
    control.cancel(service.of("acme"), service.journals, service.get(job), "key:ann")
    assert attempt.report(Report()).is_over
    found, run = service.get(job), service.journals.run(job.id)
    assert (found.status, found.cost_usd, spent(service)[0]) == ("cancelled", 1.0, 1.0)
    assert (run.status, run.claim.owner) == ("cancelled", None)
