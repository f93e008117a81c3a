"""Works of three tenants have the undisturbed result if anything is killed or cut; nothing recorded is paid twice.

Each round hits every kind of `KINDS` once, and on a Ray cluster a node too; the short round of `make test` those of
`SHORT`.
"""

import importlib.util
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gepa_client.journal.store import Store, open_store
from gepa_service.auth.keys import make_key
from gepa_service.model.tenant import TENANTS as OF_TENANTS
from gepa_service.model.tenant import Tenant
from gepa_service.model.work import ENDED, NAMES, PROMPT, ProgramWork, TaskResult, What, Work
from gepa_service.records import RecordStore, RecordsUnavailable, new_id, open_records
from tests.faults import execution_log
from tests.faults.outcome import Executions, executions_of, faults
from tests.faults.proxy import Proxy
from tests.gepa_client.journal.mongo_process import MongoProcess
from tests.gepa_service.engines.ray_cluster import RayCluster, ray_cluster
from tests.gepa_service.faults.cutter import Cutter
from tests.gepa_service.faults.followers import Follower
from tests.gepa_service.faults.note_sink import note_sink
from tests.gepa_service.faults.processes import AT_ONCE, DISPATCHERS, PROCESSES, Processes, listening
from tests.gepa_service.platform import platform, word_repository, word_settings, working
from tests.support.rounds import ALL, FAULT_ROUNDS

pytestmark = pytest.mark.faults

KINDS = ("api", "dispatcher", "job process", "driver", "database", "connections")
"""What is hit. `database`: with SQLite all processes that have it open, with MongoDB its server, which comes back."""

SHORT = ("dispatcher", "driver", "connections")
NODE = "node"
"""What is hit of a Ray cluster: a node is lost, and another one joins."""

TENANTS = ("acme", "rival", "third")
WHATS: tuple[What, ...] = ("optimize", "optimize", "rollouts", "step") if ALL else ("optimize",)
"""Kinds of works, in the order in which they are submitted, again and again."""

WORKS = 8 if ALL else 1
FOLLOWED = 3 if ALL else 1
"""Jobs whose streams are followed: fewer than an API replays at the same time."""

MOST_WORKS = 4 * WORKS
CALLS = 50
WAIT_S = 1500.0 if ALL else 240.0
LOST_AT_ONCE = 40
"""Examples that one fault may cost: what is in flight in all jobs."""

IN_FLIGHT = 4
"""Calls that a driver may have begun, and not recorded, before one that it has recorded: it makes two at once."""

SLOWER = 20
"""How much longer a row takes in a batch or step than in a job, so that faults meet it."""

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
    works: list[Work] = field(default_factory=list)
    followers: list[Follower] = field(default_factory=list)
    hit: list[str] = field(default_factory=list)
    started_again: int = 0

    def submit(self) -> Work:
        number = len(self.works)
        tenant, log = TENANTS[number % len(TENANTS)], self.log(number)
        noted = log if self.sink is None else f"{self.sink}/{log.name}"
        work = work_of(WHATS[number % len(WHATS)], tenant, self.repo, noted)
        if self.sink is not None:
            work = work.model_copy(update={"settings": {**work.settings, "allow_hosts": ["127.0.0.0/8"]}})
        self.records.insert(work)
        self.works.append(work)
        if work.what == "optimize" and (len(self.followers) < FOLLOWED or number >= WORKS):
            self.followers.append(Follower(self.cutters[0].url, self.keys[tenant], work))
        return work

    def log(self, number: int) -> Path:
        return self.folder / f"log-{number}"

    def seen(self) -> list[Work]:
        """The works as they are now."""
        found = [self.records.get(Work, work.tenant, work.id) for work in self.works]
        known = [work for work in found if work is not None]
        assert len(known) == len(self.works), "a work is gone"
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
            if not self.processes.kill_of_work(kind, self.random):
                return False
        elif kind == NODE:
            if not self.processes.lose_node(self.random):
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
        """Hit all of these kinds while works run; return the works once all have ended, with those added for it."""
        deadline = time.monotonic() + WAIT_S
        due = time.monotonic() + self.random.uniform(*pause_s)
        while True:
            self.started_again += self.processes.start_ended()
            try:
                known = self.seen()
            except RecordsUnavailable:  # of a database that was killed
                continue
            left = [kind for kind in kinds if kind not in self.hit]
            if all(work.status in ENDED for work in known):
                if not left:
                    return known
                assert len(self.works) < MOST_WORKS, f"{left} could not be hit"
                self.submit()
            state = f"{[(work.what, work.status, work.reason) for work in known]}, hit {self.hit}, left {left}"
            assert time.monotonic() < deadline, f"{state}\n{self.processes.logs()}"
            if left and time.monotonic() >= due:
                self.hit_once(left[0])
                due = time.monotonic() + self.random.uniform(*pause_s)
            time.sleep(0.05)

    def check(self, works: list[Work], expected: Mapping[What, Any]) -> None:
        """Every work is as an undisturbed one, was paid for once, and a job was run by one attempt at a time."""
        assert self.mongo is not None or not self.started_again, self.processes.logs()
        with closing(open_store(self.store_url)) as store:
            for number, work in enumerate(works):
                assert work.status == "completed", (work.status, work.reason, work.failure, self.processes.logs())
                assert result_of(self.records, store, work) == expected[work.what], work.id
                if work.what == "optimize":
                    executions = executions_of(self.store_url, work.id, self.log(number))
                    owners = [seal.owner for seal in store.seals(work.id, "search")]
                    assert len(filled_gaps(owners)) <= IN_FLIGHT, f"two drivers wrote in turns: {owners}"
                else:
                    recorded = frozenset(each["output"]["ran"] for each in results_of(self.records, work))
                    executions = Executions(execution_log.executions(self.log(number)), recorded)
                assert faults(executions, in_flight=LOST_AT_ONCE * work.attempts) == []


def work_of(what: What, tenant: str, repo: Path, log: Path | str) -> Work:
    """An optimization, a batch or a step of the program, which notes in `log` what it runs."""
    words = word_settings(log, metric_calls=CALLS, slower=1 if what == "optimize" else SLOWER)
    settings: dict[str, Any] = {"repo": str(repo)}
    program = None
    if what == "optimize":
        settings |= {**words, "lease_s": RUN_LEASE_S}
    else:
        rows = [row for split in ("trainset", "valset", "testset") for row in words[split]]
        tasks = tuple({"task_id": str(at), "row": row} for at, row in enumerate(rows))
        program = ProgramWork(candidate={"part0": "red"}, tasks=tasks)
        if what == "step":
            mutation = {"kind": PROMPT, "texts": {"part1": "green"}}
            program = program.model_copy(update={"mutation": mutation, "makes": new_id("program")})
    fields = {"repo_url": str(repo), "settings": settings, "program": program, "created_by": "key:test"}
    return Work(tenant=tenant, id=new_id(NAMES[what]), what=what, **fields)


def filled_gaps(owners: list[str]) -> list[int]:
    """The entries of a later owner before the last one of an earlier: calls that were in flight as that one ended."""
    order = list(dict.fromkeys(owners))
    last = {owner: number for number, owner in enumerate(owners)}
    return [
        number
        for number, owner in enumerate(owners)
        if any(number < last[earlier] for earlier in order[: order.index(owner)])
    ]


def result_of(records: RecordStore, store: Store, work: Work) -> list[Any]:
    """What the work has come to."""
    if work.what == "optimize":
        made = store.candidates(work.id)
        return [(each.texts, each.parents, each.score, each.scores, each.metric_calls) for each in made]
    results = results_of(records, work)
    return [(each["score"], each["output"]["value"], each["output"]["missing"]) for each in results]


def results_of(records: RecordStore, work: Work) -> list[dict[str, Any]]:
    """The results of a batch or a step, in the order of its tasks; each task has one."""
    if work.what == "step":
        assert work.result is not None
        return [each["after"] for each in work.result["tried"]]
    found = list(records.every(TaskResult, work.tenant, {"work_id": work.id}))
    assert work.program is not None
    assert sorted(each.index for each in found) == list(range(len(work.program.tasks)))
    return [each.result for each in sorted(found, key=lambda each: each.index)]


@contextmanager
def round_of(
    number: int, folder: Path, sandbox: str, *, with_mongo: bool, cluster: RayCluster | None
) -> Iterator[Round]:
    """An API and dispatchers over SQLite or MongoDB; works' processes and streams reach the API by proxies."""
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
            records.insert(Tenant(tenant=OF_TENANTS, id=tenant, name=tenant))
        processes = Processes(folder, where, journals, sandbox, cluster=cluster)
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
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[What, Any]:
    """The results of works that nothing happens to."""
    folder, found = tmp_path_factory.mktemp("undisturbed"), dict[What, Any]()
    with platform(folder) as quiet:
        repo = word_repository(folder / "repo")
        for what in dict.fromkeys(WHATS):
            work = work_of(what, "acme", repo, folder / f"log-{what}")
            quiet.records.insert(work)
            with working(quiet.parts(), quiet.place()):
                ended = quiet.ended(work)
            assert ended.status == "completed", (ended.reason, quiet.log(work))
            found[what] = result_of(quiet.records, quiet.journals, ended)
            assert len(found[what]) > 1, "nothing to compare by"
    return found


@pytest.mark.timeout(2 * WAIT_S)
@pytest.mark.parametrize("number", range(FAULT_ROUNDS))
def test_works_survive_each_kind_of_fault(number: int, tmp_path: Path, expected: dict[What, Any]) -> None:
    survives(number, tmp_path / "round", [*(KINDS if ALL else SHORT)], expected)


@pytest.mark.long
@pytest.mark.timeout(2 * WAIT_S)
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
@pytest.mark.parametrize("number", range(FAULT_ROUNDS))
def test_works_on_a_ray_cluster_survive_the_loss_of_a_node_too(
    number: int, tmp_path: Path, expected: dict[What, Any]
) -> None:
    with ray_cluster(cpus=0) as cluster:
        for name in ("one", "two"):
            cluster.node(name, cpus=AT_ONCE)
        ended = survives(number, tmp_path / "round", [*KINDS, NODE], expected, cluster)
    lost = sum(work.attempts - 1 for work in ended)
    assert lost <= 2 * AT_ONCE, "the loss of a dispatcher or a database ends no attempt on a node"


def survives(
    number: int, folder: Path, kinds: list[str], expected: Mapping[What, Any], cluster: RayCluster | None = None
) -> list[Work]:
    """Hit all of these kinds while works run, and check that each ends as `expected`; return the works."""
    sandbox, with_mongo = "bubblewrap" if number % 10 == 9 else "process", number % 2 == 1
    with round_of(number, folder, sandbox, with_mongo=with_mongo, cluster=cluster) as disturbed:
        for _ in range(WORKS):
            disturbed.submit()
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
    return ended
