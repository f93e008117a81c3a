"""Jobs of three tenants have the undisturbed result if anything is killed or cut; nothing recorded is paid twice.

Each round hits every kind of `KINDS` once; the short round of `make test` those of `SHORT`.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gepa_client.journal.store import Store, open_store
from gepa_service.auth.keys import make_key
from gepa_service.model.work import ENDED, Work
from gepa_service.records import RecordStore, RecordsUnavailable, new_id, open_records
from tests.faults.outcome import executions_of, faults
from tests.faults.proxy import Proxy
from tests.gepa_client.journal.mongo_process import MongoProcess
from tests.gepa_service.faults.cutter import Cutter
from tests.gepa_service.faults.followers import Follower
from tests.gepa_service.faults.note_sink import note_sink
from tests.gepa_service.faults.processes import DISPATCHERS, PROCESSES, Processes, listening
from tests.gepa_service.platform import platform, word_repository, word_settings, working
from tests.support.rounds import ALL, FAULT_ROUNDS

pytestmark = pytest.mark.faults

KINDS = ("api", "dispatcher", "job process", "driver", "database", "connections")
"""What is hit. `database`: with SQLite all processes that have it open, with MongoDB its server, which comes back."""

SHORT = ("dispatcher", "driver", "connections")
TENANTS = ("acme", "rival", "third")
JOBS = 8 if ALL else 1
FOLLOWED = 3 if ALL else 1
"""Jobs whose streams are followed: fewer than an API replays at the same time."""

MOST_JOBS = 4 * JOBS
CALLS = 50
WAIT_S = 1500.0 if ALL else 240.0
LOST_AT_ONCE = 40
"""Examples that one fault may cost: what is in flight in all jobs."""

IN_FLIGHT = 4
"""Calls that a driver may have begun, and not recorded, before one that it has recorded: it makes two at once."""

RUN_LEASE_S = 20.0
"""Of a run, which the next attempt at its job does not wait for."""

BAD_MESSAGES = 0.03
"""Of the requests of jobs' processes to the API, the share that is lost, cut, repeated or answered by 502."""


@dataclass
class Round:
    """The parts of one round.

    `cutters`: for streams, and for processes of jobs. `sink`: where programs in sandboxes note. `hit`: what was done.
    `started_again`: processes that ended as their database was away.
    """

    number: int
    folder: Path
    repo: Path
    records: RecordStore
    store_url: str
    processes: Processes
    cutters: tuple[Cutter, Cutter]
    mongo: MongoProcess | None
    sink: str | None
    keys: dict[str, str]
    random: Random
    jobs: list[Work] = field(default_factory=list)
    followers: list[Follower] = field(default_factory=list)
    hit: list[str] = field(default_factory=list)
    started_again: int = 0

    def submit(self) -> Work:
        number = len(self.jobs)
        log = self.log(number)
        words = word_settings(log if self.sink is None else f"{self.sink}/{log.name}", metric_calls=CALLS)
        settings = {**words, "repo": str(self.repo), "lease_s": RUN_LEASE_S}
        if self.sink is not None:
            settings["allow_hosts"] = ["127.0.0.0/8"]
        tenant = TENANTS[number % len(TENANTS)]
        job = Work(tenant=tenant, id=new_id("job"), repo_url=str(self.repo), settings=settings, created_by="key:test")
        self.records.insert(job)
        self.jobs.append(job)
        if len(self.jobs) <= FOLLOWED or len(self.jobs) > JOBS:
            self.followers.append(Follower(self.cutters[0].url, self.keys[tenant], job))
        return job

    def log(self, number: int) -> Path:
        return self.folder / f"log-{number}"

    def seen(self) -> list[Work]:
        """The jobs as they are now."""
        found = [self.records.get(Work, job.tenant, job.id) for job in self.jobs]
        known = [job for job in found if job is not None]
        assert len(known) == len(self.jobs), "a job is gone"
        return known

    def hit_once(self, kind: str) -> bool:
        """Do what the kind names; return whether there was something to hit: of the API, a stream that it sends."""
        if kind in ("api", "database") and any(follower.is_comparing for follower in self.followers):
            return False
        if kind == "api":
            if not any(follower.is_reading for follower in self.followers):
                return False
            self.processes.kill("api")
        elif kind == "dispatcher":
            self.processes.kill(f"dispatcher {self.random.randrange(DISPATCHERS)}")
        elif kind in PROCESSES:
            if not self.processes.kill_of_job(kind, self.random, self.jobs):
                return False
        elif kind == "connections":
            if not sum(cutter.cut() for cutter in self.cutters):
                return False
        elif self.mongo is None:
            self.processes.kill(*self.processes.names)
        else:
            self.mongo.kill()
            time.sleep(self.random.uniform(0.5, 3.0))
            self.mongo.start()
        self.hit.append(kind)
        return True

    def all_ended(self, kinds: list[str], pause_s: tuple[float, float]) -> list[Work]:
        """Hit all of these kinds while jobs run; return the jobs once all have ended, with those added for it."""
        deadline = time.monotonic() + WAIT_S
        due = time.monotonic() + self.random.uniform(*pause_s)
        while True:
            self.started_again += self.processes.start_ended()
            try:
                known = self.seen()
            except RecordsUnavailable:  # of a database that was killed
                continue
            left = [kind for kind in kinds if kind not in self.hit]
            if all(job.status in ENDED for job in known):
                if not left:
                    return known
                assert len(self.jobs) < MOST_JOBS, f"{left} could not be hit"
                self.submit()
            state = f"{[(job.status, job.reason) for job in known]}, hit {self.hit}, left {left}"
            assert time.monotonic() < deadline, f"{state}\n{self.processes.logs()}"
            if left and time.monotonic() >= due:
                self.hit_once(left[0])
                due = time.monotonic() + self.random.uniform(*pause_s)
            time.sleep(0.05)

    def check(self, jobs: list[Work], expected: list[Any]) -> None:
        """Every job is as an undisturbed one, was paid for once, and was run by one attempt at a time."""
        assert self.mongo is not None or not self.started_again, self.processes.logs()
        with closing(open_store(self.store_url)) as store:
            for number, job in enumerate(jobs):
                assert job.status == "completed", (job.status, job.reason, job.failure, self.processes.logs())
                assert result_of(store, job) == expected, job.id
                executions = executions_of(self.store_url, job.id, self.log(number))
                assert faults(executions, in_flight=LOST_AT_ONCE * job.attempts) == []
                owners = [seal.owner for seal in store.seals(job.id, "search")]
                assert len(filled_gaps(owners)) <= IN_FLIGHT, f"two drivers wrote in turns: {owners}"


def filled_gaps(owners: list[str]) -> list[int]:
    """The entries of a later owner before the last one of an earlier: calls that were in flight as that one ended."""
    order = list(dict.fromkeys(owners))
    last = {owner: number for number, owner in enumerate(owners)}
    return [
        number
        for number, owner in enumerate(owners)
        if any(number < last[earlier] for earlier in order[: order.index(owner)])
    ]


def result_of(store: Store, job: Work) -> list[Any]:
    return [(each.texts, each.parents, each.score, each.scores, each.metric_calls) for each in store.candidates(job.id)]


@contextmanager
def round_of(number: int, folder: Path, sandbox: str, *, with_mongo: bool) -> Iterator[Round]:
    """An API and dispatchers over SQLite or MongoDB; jobs' processes and streams reach the API by proxies."""
    folder.mkdir(exist_ok=True)
    random = Random(number)
    with ExitStack() as stack:
        mongo = MongoProcess(folder, in_memory=False) if with_mongo else None
        if mongo is not None:
            stack.callback(mongo.kill)
        databases = [str(folder / name) for name in ("records.db", "journals.db")]
        where, journals = (mongo.url, mongo.url) if mongo is not None else databases
        records = stack.enter_context(closing(open_records(where)))
        keys = {}
        for tenant in TENANTS:
            keys[tenant], record = make_key(tenant, "faults", "viewer")
            records.insert(record)
        processes = Processes(folder, where, journals, sandbox)
        proxy = stack.enter_context(Proxy(processes.port, Random(number), BAD_MESSAGES))
        ports = (processes.port, int(proxy.url.rpartition(":")[2]))
        cutters = [stack.enter_context(Cutter(port)) for port in ports]
        processes.reached_at = int(cutters[1].url.rpartition(":")[2])
        stack.enter_context(processes)
        listening(processes.port)
        repo = word_repository(folder / "repo")
        sink = stack.enter_context(note_sink(folder)) if sandbox == "bubblewrap" else None
        parts = (number, folder, repo, records, journals, processes, (cutters[0], cutters[1]), mongo, sink)
        yield Round(*parts, keys, random)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The result of a job that nothing happens to."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with platform(folder) as quiet:
        job = quiet.submit(word_repository(folder / "repo"), word_settings(folder / "log", metric_calls=CALLS))
        with working(quiet.parts(), quiet.place()):
            assert (ended := quiet.ended(job)).status == "completed", (ended.reason, quiet.log(job))
        found = result_of(quiet.journals, job)
    assert len(found) > 1, "nothing to compare by"
    return found


@pytest.mark.timeout(2 * WAIT_S)
@pytest.mark.parametrize("number", range(FAULT_ROUNDS))
def test_jobs_survive_each_kind_of_fault(number: int, tmp_path: Path, expected: list[Any]) -> None:
    sandbox, with_mongo = "bubblewrap" if number % 10 == 9 else "process", number % 2 == 1
    with round_of(number, tmp_path / "round", sandbox, with_mongo=with_mongo) as disturbed:
        for _ in range(JOBS):
            disturbed.submit()
        kinds = [*(KINDS if ALL else SHORT)]
        disturbed.random.shuffle(kinds)
        ended = disturbed.all_ended(kinds, (0.5, 5.0) if ALL else (0.3, 1.0))
        followers = disturbed.followers
        for follower in followers:
            follower.ended()
        found = {each.job.id: each.differences for each in followers}
        assert found == {each.job.id: [] for each in followers}, "events of streams were lost or doubled"
        disturbed.check(ended, expected)
    assert sorted(disturbed.hit) == sorted(kinds), "each kind is hit once"
    resets = sum(each.resets for each in followers)
    assert "api" not in disturbed.hit or resets, "no stream met an API that was started again"
