"""Jobs of three tenants have the undisturbed result if any process is killed; nothing recorded is paid twice."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gepa_client.journal.store import Store, open_store
from gepa_service.model.job import ENDED, Job
from gepa_service.records.open_records import open_records
from gepa_service.records.record import new_id
from gepa_service.records.store import RecordStore
from tests.faults.mongo import Mongo
from tests.faults.outcome import executions_of, faults
from tests.faults.proxy import Proxy
from tests.gepa_service.faults.processes import Processes, listening
from tests.gepa_service.platform import word_repository, word_settings
from tests.support.rounds import ALL, rounds

pytestmark = pytest.mark.faults

JOBS = 8 if ALL else 3
TENANTS = ("acme", "rival", "third")
KILLED = ("api", "worker", "job process", "driver")
CALLS = 50
WAIT_S = 500.0 if ALL else 240.0
LOST_AT_ONCE = 40
"""Examples that one fault may cost: what is in flight in all jobs of a worker."""


def submitted(records: RecordStore, repo: Path, folder: Path, number: int, tenant: str) -> Job:
    settings = {"repo": str(repo), **word_settings(folder / f"log-{number}", metric_calls=CALLS)}
    job = Job(tenant=tenant, id=new_id("job"), repo_url=str(repo), settings=settings, created_by="key:test")
    records.insert(job)
    return job


def result_of(store: Store, job: Job) -> list[Any]:
    return [(each.texts, each.parents, each.score, each.scores, each.metric_calls) for each in store.candidates(job.id)]


def all_ended(records: RecordStore, jobs: list[Job], disturb: Callable[[], object], processes: Processes) -> list[Job]:
    """Wait until all jobs have ended, while things happen."""
    deadline = time.monotonic() + WAIT_S
    while True:
        found = [records.get(Job, job.tenant, job.id) for job in jobs]
        known = [job for job in found if job is not None]
        if all(job.status in ENDED for job in known):
            return known
        assert time.monotonic() < deadline, f"{[(job.status, job.reason) for job in known]}\n{processes.logs()}"
        disturb()


def check(store_url: str, folder: Path, jobs: list[Job], expected: list[Any]) -> None:
    """Every job is as an undisturbed one, paid for once, and driven by one worker at a time."""
    with closing(open_store(store_url)) as store:
        for number, job in enumerate(jobs):
            assert job.status == "completed", (job.status, job.reason, job.failure)
            assert result_of(store, job) == expected, job.id
            executions = executions_of(store_url, job.id, folder / f"log-{number}")
            assert faults(executions, in_flight=LOST_AT_ONCE * job.attempts) == []
            owners = [link.owner for link in store.links(job.id, "search")]
            changes = sum(before != after for before, after in pairwise(owners))
            assert changes == len(set(owners)) - 1, "two drivers wrote in turns"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def undisturbed(records: RecordStore, store_url: str, repo: Path, folder: Path, processes: Processes) -> list[Any]:
    job = submitted(records, repo, folder, JOBS, TENANTS[0])
    [ended] = all_ended(records, [job], lambda: time.sleep(0.1), processes)
    assert ended.status == "completed", (ended.reason, processes.logs())
    with closing(open_store(store_url)) as store:
        found = result_of(store, ended)
    assert len(found) > 1, "nothing to compare by"
    return found


@pytest.mark.timeout(2 * WAIT_S)
@pytest.mark.parametrize("number", rounds(30))
def test_jobs_survive_the_death_of_any_process(number: int, tmp_path: Path, stack: ExitStack) -> None:
    random = Random(number)
    sandbox = "bubblewrap" if number % 10 == 9 else "process"
    repo, journals = word_repository(tmp_path / "repo"), str(tmp_path / "journals.db")
    records = stack.enter_context(closing(open_records(str(tmp_path / "records.db"))))
    processes = stack.enter_context(Processes(tmp_path, str(tmp_path / "records.db"), journals, sandbox))
    listening(processes.port)
    expected = undisturbed(records, journals, repo, tmp_path, processes)
    jobs = [submitted(records, repo, tmp_path, each, TENANTS[each % 3]) for each in range(JOBS)]
    left = [*KILLED] * (2 if ALL else 1)
    random.shuffle(left)

    def disturb() -> None:
        time.sleep(random.uniform(0.5, 6.0) if ALL else random.uniform(0.2, 1.5))
        if left and processes.kill(left[-1], random, jobs):
            left.pop()

    ended = all_ended(records, jobs, disturb, processes)
    assert not left, "not everything was killed before the jobs had ended"
    check(journals, tmp_path, ended, expected)


@pytest.mark.timeout(2 * WAIT_S)
@pytest.mark.parametrize("number", rounds(30))
def test_jobs_survive_a_bad_network_and_a_database_that_goes_away(
    number: int, tmp_path: Path, stack: ExitStack
) -> None:
    random = Random(number)
    mongo = stack.enter_context(Mongo(tmp_path / "mongo"))
    databases = mongo.url
    repo = word_repository(tmp_path / "repo")
    records = stack.enter_context(closing(open_records(databases)))
    processes = Processes(tmp_path, databases, databases)
    proxy = stack.enter_context(Proxy(processes.port, random, 0.05))
    processes.reached_at = int(proxy.url.rpartition(":")[2])
    stack.enter_context(processes)
    listening(processes.port)
    expected = undisturbed(records, databases, repo, tmp_path, processes)
    jobs = [submitted(records, repo, tmp_path, each, TENANTS[each % 3]) for each in range(JOBS)]
    stops = [True] * (3 if ALL else 1)

    def disturb() -> None:
        time.sleep(random.uniform(0.5, 4.0))
        if stops:
            stops.pop()
            mongo.kill()
            time.sleep(random.uniform(0.5, 3.0))
            mongo.start()

    ended = all_ended(records, jobs, disturb, processes)
    assert sum(count for fault, count in proxy.did.items() if fault != "none") > 0
    check(databases, tmp_path, ended, expected)
