"""A dispatcher has jobs run to their ends, and leaves them whole when it is stopped."""

from pathlib import Path

import pytest

from gepa_service.jobs import attempt, attempt_records, control
from gepa_service.webhooks import EVENTS, Webhook, WebhookDelivery
from tests.gepa_service.platform import Platform, processes_of, word_repository, word_settings, working
from tests.sandbox_runtime.source.repositories import commit
from tests.support.waiting import until


def test_a_job_that_is_handed_over_continues_where_it_was_and_a_new_budget_reaches_it_while_it_runs(
    service: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "RENEW_S", 0.0)
    # What is left takes longer than the way of the new budget.
    settings = word_settings(tmp_path / "log", metric_calls=400, slower=30)
    job, acme = service.submit(word_repository(tmp_path / "repo"), settings), service.of("acme")
    events = tuple(EVENTS.values())
    acme.insert(Webhook(tenant="acme", id="w", url="https://x", events=events, created_by="k"))
    with working(service.parts(), service.place()):
        token = service.place().folder / f"{job.id}-1" / "token"
        first = until(lambda: token.exists() and token.read_text())
        service.until(job, lambda found: found.progress.metric_calls > 10 and token.read_text() != first)
    left = service.get(job)
    assert (left.status, left.reason, left.setbacks) == ("pending", "the service was stopped", 0)
    assert not processes_of(job)
    before, calls = service.journals.parts(job.id)["search"], left.progress.metric_calls
    with working(service.parts(), service.place()):
        second = service.until(job, lambda found: found.attempts == 2 and found.progress.metric_calls > calls)
        last = second.progress.metric_calls + 40
        budget = {"max_metric_calls": last}
        control.set_budget(acme, service.journals, service.get(job), "key:ann", budget)
        ended = service.ended(job)
    assert ended.status == "completed", f"{ended!r}\n{service.log(job)}"
    assert ended.attempts == 2, ended.reason
    assert last <= ended.progress.metric_calls < 300
    assert service.journals.parts(job.id)["search"] > before
    assert [each.event for each in acme.page(WebhookDelivery)] == ["job.started", "job.completed"]


KILLS_ITS_SERVER = """

import pathlib, signal

usual = make_reflective_dataset

def make_reflective_dataset(*arguments):
    killed = pathlib.Path(KILLED)
    killed.touch()
    pid = os.getppid()
    while b"rpc_server\\0" not in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
        pid = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(pid, signal.SIGKILL)
    return usual(*arguments)
"""


def test_a_job_whose_server_is_lost_in_its_check_is_tried_again_until_it_was_too_often(
    service: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo, killed = word_repository(tmp_path / "repo"), tmp_path / "killed"
    added = KILLS_ITS_SERVER.replace("KILLED", repr(str(killed)))
    commit(repo, {"program.py": (repo / "program.py").read_text() + added})
    monkeypatch.setattr(attempt_records, "MOST_SETBACKS", 0)
    job = service.submit(repo, word_settings(tmp_path / "log"))
    with working(service.parts(), service.place()):
        ended = service.ended(job)
    assert killed.exists()
    assert ended.attempts == 1, ended.reason
    assert ended.status == "failed"
    assert ended.failure is not None
    assert ended.failure["kind"] == "preflight"
    assert ended.failure["message"].startswith("it was interrupted 1 times before it got any further")
    assert [example["status"] for example in ended.failure["check"]["examples"]] == ["ok"] * 6
    assert service.journals.runs() == []
