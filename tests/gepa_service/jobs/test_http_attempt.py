"""An attempt without a database does its work over the API; what is delivered twice or late changes nothing."""

import gc
import pickle
import threading
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from evolverpc_common.installation import installed_version
from gepa_service.api import safety
from gepa_service.auth.job_tokens import JobTokens
from gepa_service.jobs import attempt as attempt_module
from gepa_service.jobs import control
from gepa_service.jobs.attempt import HttpAttemptService, run_on_node
from gepa_service.jobs.attempt_records import AttemptRecords
from gepa_service.jobs.dispatcher import Queue
from gepa_service.jobs.job_environment import cache_folder
from gepa_service.jobs.kept_results import KeptResults
from gepa_service.jobs.messages import Begun, Ended, LogLines, Report, Spent, TaskDone
from gepa_service.jobs.month_spending import month_id
from gepa_service.model.tenant import Usage
from gepa_service.model.work import LogChunk, LogLine, ProgramWork, TaskResult, Work
from gepa_service.records import new_id, now
from gepa_service.service import Revealed
from gepa_service.webhooks import Webhook, WebhookDelivery
from tests.faults.proxy import Proxy
from tests.gepa_service.platform import MASTER, Platform
from tests.sandbox_runtime.source.repositories import commit

SECRET = "the-secret-of-acme"
BAD_MESSAGES = 0.4
"""Of the requests of an attempt, the share that is lost, cut, repeated or answered by 502."""

PROGRAM = """
import os

seed_candidate = {"prompt": "plain"}

def run(row, candidate):
    open(row["ran"], "x").close()
    return os.environ.get("OWN_KEY", "none")

def score(row, output):
    return float(output != "none"), "-"
"""


def placed(service: Platform, tasks: int) -> Work:
    """The first attempt at a batch, which no process makes yet."""
    commit(service.folder / "repo", {"program.py": PROGRAM, "gepa.toml": 'program = "program.py"\n'})
    rows = tuple({"row": {"ran": str(service.folder / f"ran{at}")}, "task_id": str(at)} for at in range(tasks))
    service.work("rollouts", service.folder / "repo", ProgramWork(tasks=rows), pass_env=["OWN_KEY"])
    found = Queue(service.records).take()
    assert found is not None
    return found


@pytest.fixture
def attempt(service: Platform) -> Iterator[tuple[Work, HttpAttemptService]]:
    work = placed(service, 2)
    with HttpAttemptService(service.api, work.id, service.tokens.issue(work, role="attempt")) as made:
        yield work, made


def test_an_attempt_on_a_node_does_its_work_over_the_api_with_its_tenants_secrets_though_messages_are_lost(
    service: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(safety, "LARGEST_BODY", 99)  # its reports may be longer than what tenants send
    service.secrets["acme"] = Revealed({"OWN_KEY": SECRET})
    queue, lost = Queue(service.records), placed(service, 3)
    done = TaskDone(index=0, result={"status": "ok", "score": 1.0, "output": "[redacted]"})
    assert not AttemptRecords(service.parts(), "acme", lost.id, 1).report(Report(message=done)).is_over
    queue.put_back(lost, "its node was lost", setbacks=0)
    work = queue.take()
    assert work is not None
    (service.place().folder / f"{work.id}-1").mkdir(parents=True)
    token = service.tokens.issue(work, role="attempt")
    with Proxy(int(service.api.rpartition(":")[2]), Random(0), BAD_MESSAGES) as network:
        place = replace(service.place(), api=network.url)
        run_on_node(work.id, token, place, installed_version(), threading.Event())
    ended = service.get(work)
    assert (ended.status, ended.setbacks, ended.done, ended.failed) == ("completed", 0, 3, 0), service.log(work)
    found = service.records.page(TaskResult, "acme")
    assert sorted(each.index for each in found) == [0, 1, 2]
    assert all(each.result["output"] == "[redacted]" and each.result["score"] == 1.0 for each in found)
    assert {each.name for each in service.folder.glob("ran*")} == {"ran1", "ran2"}, "what was done is not paid again"
    lines = [line.text for chunk in service.records.page(LogChunk, "acme", {"job_id": work.id}) for line in chunk.lines]
    assert lines[0] == "attempt 2 begins"
    assert lines[-1] == "completed"
    assert list((service.folder / "jobs").glob("*")) == []
    assert list(place.cache.iterdir()) == [cache_folder("acme", place.cache)], "no tenant uses what another one built"


def test_what_is_delivered_again_is_neither_stored_nor_counted_again(
    service: Platform, attempt: tuple[Work, HttpAttemptService]
) -> None:
    work, http = attempt
    acme = service.of("acme")
    acme.insert(
        Webhook(tenant="acme", id="w", url="https://x", events=("job.completed", "batch.ended"), created_by="k")
    )
    begun = http.begin()
    assert isinstance(begun, Begun)
    logs = (LogLines(id=new_id("log"), lines=(LogLine(at=now(), source="job", text="one"),)),)
    reports = [
        Report(logs=logs),
        Report(message=TaskDone(index=0, result={"status": "ok"})),
        Report(message=Spent(usd=0.5, unpriced=1)),
        Report(message=Spent(usd=0.75, unpriced=1)),
    ]
    others = [AttemptRecords(service.parts(), "acme", work.id, 1) for _ in range(2)]  # of other processes of the API
    for take in (http.report, *(other.report for other in others)):
        for report in (*reports, reports[2]):
            assert not take(report).is_over
    assert http.report(Report(message=TaskDone(index=1, result={"status": "timeout"}))).stop is None
    for take in (others[0].report, http.report, http.report):
        assert take(Report(message=Ended(status="completed"))).is_over
    ended = service.get(work)
    assert (ended.status, ended.done, ended.cost_usd) == ("partial", 2, 0.75)
    [delivery] = acme.page(WebhookDelivery)
    counts = {"total": 2, "completed": 1, "failed": 1}
    assert (delivery.event, delivery.payload) == ("batch.ended", {"batch_id": work.id, "status": "partial", **counts})
    month = service.records.get(Usage, "acme", month_id(now()))
    assert month is not None
    assert (month.usd, month.unpriced) == (0.75, 1)
    assert [each.index for each in service.records.page(TaskResult, "acme")] == [0, 1]
    chunks = service.records.page(LogChunk, "acme", {"job_id": work.id})
    lines = [line.text for chunk in chunks for line in chunk.lines]
    assert lines == ["one", "partial: 1 of 2 tasks failed"]


def test_the_api_keeps_no_result_in_memory_and_nothing_of_an_attempt_that_has_ended(
    service: Platform, attempt: tuple[Work, HttpAttemptService]
) -> None:
    work, http = attempt

    def kept() -> list[KeptResults]:
        present = gc.get_objects()  # proxies of other tests are among them, whose objects may be gone
        return [each for each in present if type(each) is KeptResults and each._work.id == work.id]

    assert http.begin() is not None
    http.report(Report(message=TaskDone(index=0, result={"status": "ok", "output": 100_000 * "x"})))
    [one] = kept()
    assert len(pickle.dumps(one._statuses)) < 1000
    http.report(Report(message=Ended(status="interrupted", reason="its process ended")))
    del one
    assert kept() == []


def test_an_attempt_gets_no_secret_and_stores_nothing_once_its_work_is_cancelled_and_another_begins(
    service: Platform, attempt: tuple[Work, HttpAttemptService]
) -> None:
    work, http = attempt
    control.cancel(service.of("acme"), service.journals, work, "key:ann")
    assert http.begin() is None
    assert http.report(Report(message=Spent(usd=0.5, unpriced=0))).is_over
    assert service.get(work).cost_usd == 0.5, "what cancelled work has spent is counted"
    service.records.replace(service.get(work).model_copy(update={"status": "running", "attempts": 2}))
    assert http.begin() is None
    late = (Spent(usd=0.9, unpriced=0), TaskDone(index=0, result={"status": "ok"}), Ended(status="completed"))
    assert all(http.report(Report(message=each)).is_over for each in late)
    found = service.get(work)
    assert (found.status, found.attempts, found.cost_usd) == ("running", 2, 0.5)
    assert service.records.page(TaskResult, "acme") == []


def test_a_paused_batch_has_its_attempt_stop_waits_and_continues(
    service: Platform, attempt: tuple[Work, HttpAttemptService]
) -> None:
    work, http = attempt
    assert http.begin() is not None
    control.pause(service.of("acme"), service.get(work), "key:ann")
    assert http.report(Report()).stop == "pause"
    ended = Report(message=Ended(status="interrupted"), stopped="service")  # which is stopped at the same time
    assert http.report(ended).is_over
    assert (service.get(work).status, service.get(work).completed) == ("paused", None)
    assert Queue(service.records).take() is None
    control.resume(service.of("acme"), service.get(work))
    again = Queue(service.records).take()
    assert again is not None
    assert (again.id, again.attempts) == (work.id, 2)
    control.pause(service.of("acme"), again, "key:ann")
    assert AttemptRecords(service.parts(), "acme", work.id, 2).begin() is None
    assert service.get(work).status == "paused"


def test_an_attempt_outlives_the_token_that_it_began_with(
    service: Platform, attempt: tuple[Work, HttpAttemptService]
) -> None:
    _, http = attempt
    assert http.begin() is not None
    for masters in ([b"another master key", MASTER], [b"another master key"]):
        vars(service.tokens).update(vars(JobTokens(service.records, masters)))
        assert not http.report(Report()).is_over


def test_work_that_takes_too_long_is_ended_and_fails(service: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    work = placed(service, 1)
    monkeypatch.setattr(attempt_module, "LATE_S", 0.1 - ProgramWork().timeout_s)
    token = service.tokens.issue(work, role="attempt")
    run_on_node(work.id, token, service.place(), installed_version(), threading.Event())
    found = service.get(work)
    assert (found.status, found.reason) == ("failed", "it took longer than 0.1 s")


def test_work_on_a_node_with_another_version_waits_and_states_both(service: Platform) -> None:
    work = placed(service, 1)
    token = service.tokens.issue(work, role="attempt")
    run_on_node(work.id, token, service.place(), "0.0.1", threading.Event())
    found = service.get(work)
    assert (found.status, found.setbacks) == ("pending", 1)
    assert all(version in (found.reason or "") for version in (installed_version(), "0.0.1"))
