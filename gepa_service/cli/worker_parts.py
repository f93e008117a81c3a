"""Make a worker from what an operator configures, and run it until a signal or its time is over."""

import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gepa_client.journal.store import Store
from gepa_client.settings.groups import SandboxKind
from gepa_service.api.app_state import Service
from gepa_service.auth.job_tokens import JobTokens
from gepa_service.jobs.attempt import WorkerParts
from gepa_service.jobs.front_port import Forward
from gepa_service.jobs.git_access import GitAccess
from gepa_service.jobs.month_spending import month_limit
from gepa_service.jobs.program_worker import Machine, ProgramWorker
from gepa_service.jobs.tenant_secrets import revealed
from gepa_service.jobs.worker import Worker, worker_name
from gepa_service.webhooks.sender import Sender

PRIVATE = 0o700
RESTART_S = 5.0
LOOK_S = 1.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MadeWorker:
    """A worker of jobs, and of what is no job. `webhooks`: sends them until the event is set."""

    jobs: Worker
    programs: ProgramWorker
    webhooks: Callable[[threading.Event], None]

    @property
    def is_busy(self) -> bool:
        """Whether it runs a job, a batch or a step."""
        return self.jobs.is_busy or self.programs.is_busy


@dataclass(frozen=True)
class WorkerOptions:
    """How a worker runs. `folder`: for the files of jobs. `jobs`: at the same time. `forward`: as of `WorkerParts`."""

    api: str
    folder: Path
    jobs: int
    sandbox: SandboxKind
    lease_s: float
    forward: Forward | None = None


def make_worker(service: Service, store: Store, options: WorkerOptions) -> MadeWorker:
    """Return a worker that does not run yet. Raises `OSError`: its folder cannot be made."""
    assert service.vault is not None  # noqa: S101  `opened_service` makes one
    vault, name, folder = service.vault, worker_name(), options.folder
    access = GitAccess(service.records, service.repositories, service.github)
    for path in (folder, folder / "cache"):
        path.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    cache = folder.resolve() / "cache"
    parts = WorkerParts(
        name=name,
        records=service.records,
        journals=store,
        tokens=JobTokens(service.records, [each.value for each in vault.masters]),
        api=options.api.rstrip("/"),
        folder=folder.resolve() / "jobs",
        cache=cache,
        lease_s=options.lease_s,
        sandbox=options.sandbox,
        secrets=lambda tenant: revealed(vault, tenant),
        git=access,
        forward=options.forward,
    )
    machine = Machine(
        sandbox=options.sandbox,
        policy=service.repositories,
        cache=cache,
        secrets=lambda tenant: revealed(vault, tenant),
        git_credentials=access.credentials,
        forward=options.forward,
    )
    sender = Sender(service.records, service.webhook_key, service.repositories.allow_networks)
    programs = ProgramWorker(service.records, machine, name, month_limit(service.records, store).is_reached)
    return MadeWorker(Worker(parts, options.jobs), programs, sender.run)


def work(worker: MadeWorker, is_over: Callable[[], bool] = lambda: False) -> None:
    """Run it until SIGTERM or SIGINT, or until `is_over`, which is asked each second; then drain it."""
    stop = threading.Event()

    def drain() -> None:
        stop.set()
        worker.jobs.drain()

    def kept(name: str, run: Callable[[threading.Event], None]) -> None:
        while not stop.is_set():
            try:
                run(stop)
            except Exception:  # noqa: BLE001  one piece of work that cannot be done may not stop the others
                _log.exception("%s: an error; continued in %g s", name, RESTART_S)
                stop.wait(RESTART_S)

    def watch() -> None:
        while not stop.wait(LOOK_S):
            if is_over():
                drain()

    beside = {"programs": worker.programs.run, "webhooks": worker.webhooks}
    threads = [threading.Thread(target=kept, args=each, name=each[0]) for each in beside.items()]
    threads.append(threading.Thread(target=watch, name="end"))
    with _signals(drain):
        for thread in threads:
            thread.start()
        try:
            worker.jobs.run()
        finally:
            stop.set()
            for thread in threads:
                thread.join()


@contextlib.contextmanager
def _signals(drain: Callable[[], None]) -> Iterator[None]:
    before = {
        number: signal.signal(number, lambda _number, _frame: drain()) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
