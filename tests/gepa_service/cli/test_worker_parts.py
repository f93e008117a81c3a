"""A worker whose time is over: it hands its jobs back, and another one completes them."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gepa_client.settings.groups import SandboxKind
from gepa_service.cli.worker_parts import MadeWorker, work
from gepa_service.jobs.attempt import Revealed
from gepa_service.jobs.program_worker import Machine, ProgramWorker
from gepa_service.jobs.worker import Worker
from gepa_service.model.job import Job
from gepa_service.repositories.policy import RepositoryPolicy
from tests.gepa_service.platform import Platform, platform, word_repository, word_settings, working

pytestmark = pytest.mark.timeout(300)
PROCESS: SandboxKind = "process"
WAIT_S = 150.0


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Platform]:
    with platform(tmp_path) as opened:
        yield opened


def made(service: Platform) -> MadeWorker:
    machine = Machine(
        sandbox=PROCESS,
        policy=RepositoryPolicy(True),
        cache=service.folder / "cache",
        secrets=lambda _tenant: Revealed(),
        git_credentials=lambda _work: None,
    )
    parts = service.parts()
    programs = ProgramWorker(service.records, machine, parts.name, lambda _tenant: False)
    return MadeWorker(Worker(parts, 1), programs, lambda stop: stop.wait() and None)


def test_a_worker_whose_time_is_over_hands_its_job_to_another_one(service: Platform, tmp_path: Path) -> None:
    service.tenant("acme")
    settings = word_settings(tmp_path / "log", metric_calls=40, slower=20)
    job = service.submit(word_repository(tmp_path / "program"), settings)
    worker, busy, until = made(service), [False], time.monotonic() + WAIT_S

    def is_over() -> bool:
        busy.append(worker.is_busy)
        found = service.get(job)
        return bool(found.progress.metric_calls) or time.monotonic() > until

    work(worker, is_over)

    assert any(busy), "it was busy while it ran the job"
    assert not worker.is_busy
    left = service.get(job)
    assert (left.status, left.reason, left.claim) == ("pending", "its worker was stopped", None)
    with working(service.parts()):
        ended: Job = service.ended(job, WAIT_S)
    assert (ended.status, ended.attempts) == ("completed", 2)
