"""A whole service for tests: records, journals, its API on a port, and dispatchers in threads of this process."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evolverpc_common.network_addresses import parse_networks
from gepa_client.journal.entries import StoredRun
from gepa_client.journal.store import Store, open_store
from gepa_service.auth.job_tokens import JobTokens
from gepa_service.auth.keys import make_key
from gepa_service.auth.oidc import OidcTokens
from gepa_service.auth.recognize import Recognizer
from gepa_service.cli.arguments import LOCAL
from gepa_service.cli.dispatcher_and_engine import opened_dispatcher
from gepa_service.jobs.dispatcher import Queue
from gepa_service.jobs.job_environment import Place
from gepa_service.model.tenant import TENANTS, Quotas, Role, Tenant
from gepa_service.model.work import ENDED, ProgramWork, What, Work
from gepa_service.records import RecordStore, TenantRecords, new_id, open_records
from gepa_service.repositories.github_app import GitHub
from gepa_service.repositories.repository_access import RepositoryPolicy
from gepa_service.service import Revealed, Service
from tests.faults.runs import Setup
from tests.gepa_service.serving import served, service_of
from tests.sandbox_runtime.source.repositories import commit
from tests.support.processes import command_of, is_running

PROGRAM = Path(__file__).parents[1] / "faults" / "served" / "logging_program.py"
MASTER = b"a master key of a test, 32 bytes"
LOOPBACK = parse_networks(["127.0.0.0/8"])
WAIT_S = 240.0
LEASE_S = 30.0
"""Seconds; above what a busy machine holds a process up."""


@dataclass
class Platform:
    """`api`: the address by which processes of jobs reach it."""

    folder: Path
    records: RecordStore
    journals_url: str
    journals: Store
    tokens: JobTokens
    api: str
    sandbox: str = "process"
    secrets: dict[str, Revealed] = field(default_factory=dict)
    github: GitHub | None = None

    def of(self, tenant: str) -> TenantRecords:
        return TenantRecords(self.records, tenant)

    def tenant(self, id_: str, **quotas: Any) -> None:
        self.records.insert(Tenant(tenant=TENANTS, id=id_, name=id_, quotas=Quotas(**quotas)))

    def key(self, tenant: str, role: Role) -> str:
        """A key of a new tenant."""
        self.tenant(tenant)
        key, record = make_key(tenant, "test", role)
        self.records.insert(record)
        return key

    def parts(self, **own: Any) -> Service:
        """The service over these stores. `own`: other parts of it."""
        mine = {
            "job_tokens": self.tokens,
            "repositories": RepositoryPolicy(True, LOOPBACK),
            "github": self.github,
            "revealed": lambda tenant: self.secrets.get(tenant, Revealed()),
        }
        recognize = Recognizer(self.records, self.tokens, OidcTokens([]))
        made = replace(service_of(self.records, self.journals_url, recognize), **{**mine, **own})
        vars(made)["store"] = self.journals
        return made

    def place(self) -> Place:
        return Place(self.api, self.folder / "jobs", self.folder / "cache", self.sandbox)

    def submit(
        self, repo: Path, settings: Mapping[str, Any], tenant: str = "acme", kind: str = "job", **fields: Any
    ) -> Work:
        given = {"repo_url": str(repo), "settings": {"repo": str(repo), **settings}, "created_by": "key:test"}
        made = Work(tenant=tenant, id=new_id(kind), **given, **fields)
        self.records.insert(made)
        return made

    def work(self, what: What, repo: Path, program: ProgramWork, **settings: Any) -> Work:
        """Submit a batch or a step of acme."""
        return self.submit(repo, settings, kind=what, what=what, program=program)

    def begun(self, tenant: str) -> Work:
        """Return a job of the tenant whose first attempt was placed, with an empty run."""
        self.submit(self.folder, {"max_metric_calls": 5}, tenant)
        job = Queue(self.records).take()
        assert job is not None
        assert job.tenant == tenant
        self.journals.create(StoredRun(id=job.id, config={"of": tenant}))
        return job

    def get(self, job: Work) -> Work:
        found = self.records.get(Work, job.tenant, job.id)
        assert found is not None
        return found

    def until(self, job: Work, wanted: Callable[[Work], bool]) -> Work:
        """Wait until the job is as wanted, and return it."""
        until = time.monotonic() + WAIT_S
        while not wanted(found := self.get(job)):
            assert time.monotonic() < until, f"waited in vain; the job is {found!r}\n{self.log(job)}"
            time.sleep(0.05)
        return found

    def ended(self, job: Work) -> Work:
        return self.until(job, lambda found: found.status in ENDED)

    def log(self, job: Work) -> str:
        folders = sorted((self.folder / "jobs").glob(f"{job.id}-*"))
        texts = [folder / name for folder in folders for name in ("job.log", "results/run.log")]
        return "\n".join(f"--- {path}\n{path.read_text()[-4000:]}" for path in texts if path.exists())


@contextmanager
def platform(folder: Path) -> Iterator[Platform]:
    """A service over SQLite files."""
    opened = open_records(str(folder / "records.db"))
    where = str(folder / "journals.db")
    store = open_store(where)
    tokens = JobTokens(opened, [MASTER])
    try:
        made = Platform(folder, opened, where, store, tokens, "")
        with served(made.parts()) as url:
            made.api = url
            yield made
    finally:
        store.close()
        opened.close()


@contextmanager
def working(
    service: Service, place: Place, at_once: int = 2, engine: str = LOCAL, *, keep_warm: bool = False
) -> Iterator[None]:
    """A dispatcher in a thread of this process; the local engine hands its work back at the end of the block.

    `keep_warm`: a further sandbox is started for each work, which costs as much as the work does.
    """
    stop = threading.Event()

    def work() -> None:
        with opened_dispatcher(service, place, at_once, engine, keep_warm=keep_warm) as dispatcher:
            dispatcher.run(stop)

    thread = threading.Thread(target=work, name="dispatcher")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(WAIT_S)
        assert not thread.is_alive(), "the dispatcher did not end"


def word_repository(folder: Path) -> Path:
    """A repository of the program that wants words in its components, and proposes its own texts."""
    files = {"gepa.toml": 'program = "program.py"\n', "program.py": PROGRAM.read_text()}
    commit(folder, files)
    return folder


def word_settings(log: Path | str, *, metric_calls: int = 60, slower: int = 1) -> dict[str, Any]:
    """The settings of a short run; the program notes in `log`, a file or an http:// URL, what it runs."""
    setup = Setup(train=6, val=4, proposals="1x1", metric_calls=metric_calls)

    def rows(first: int, count: int) -> list[dict[str, Any]]:
        found = [setup._row(number, log) for number in range(first, first + count)]
        return [{**row, "ms": row["ms"] * slower} for row in found]  # type: ignore[operator]

    return {
        "trainset": rows(0, 6),
        "valset": rows(6, 4),
        "testset": rows(10, 4),
        "seed": setup.seed,
        "max_metric_calls": metric_calls,
        "reflection_minibatch_size": 3,
        "lease_s": LEASE_S,
        "name": "words",
    }


def processes_of(job: Work) -> list[int]:
    """The job processes of a job and what they started on this machine: those that work in its folder."""
    return working_in(f"/{job.id}-")


def shared_processes_in(folder: Path) -> list[int]:
    """The processes of batches and steps whose folders are in this one."""
    return [pid for pid in working_in(f"{folder}/shared-process-") if b"jobs.process_main" in command_of(pid)]


def working_in(path: str) -> list[int]:
    """The processes whose working folder's path contains `path`."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if path in str((folder / "cwd").readlink()) and is_running(int(folder.name)):
                found.append(int(folder.name))
    return found
