"""Make a worker from what an operator configures, and run it until a signal or its time is over."""

import logging
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from evolverpc_common.signal_handlers import signals_handled
from gepa_client.journal.store import Store
from gepa_client.settings.run_settings import SandboxKind
from gepa_service.api.app_state import Service
from gepa_service.auth.job_tokens import JobTokens
from gepa_service.jobs.front_port import Forward
from gepa_service.jobs.git_access import GitAccess
from gepa_service.jobs.parts import WorkerParts
from gepa_service.jobs.tenant_secrets import revealed
from gepa_service.jobs.worker import Worker, worker_name
from gepa_service.webhooks.sender import Sender

PRIVATE = 0o700
RESTART_S = 5.0
LOOK_S = 1.0
_log = logging.getLogger(__name__)


def make_worker(
    service: Service,
    store: Store,
    *,
    api: str,
    folder: Path,
    jobs: int,
    sandbox: SandboxKind,
    lease_s: float,
    forward: Forward | None = None,
) -> Worker:
    """Return a worker that does not run yet. `jobs`: as `Worker.at_once`; the rest: as of `WorkerParts`.

    Raises:
        OSError: its folder cannot be made.
    """
    assert service.vault is not None  # noqa: S101  `opened_service` makes one
    vault = service.vault
    access = GitAccess(service.records, service.repositories, service.github)
    for path in (folder, folder / "cache"):
        path.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    cache = folder.resolve() / "cache"
    parts = WorkerParts(
        name=worker_name(),
        records=service.records,
        journals=store,
        tokens=JobTokens(service.records, [each.value for each in vault.masters]),
        api=api.rstrip("/"),
        folder=folder.resolve() / "jobs",
        cache=cache,
        lease_s=lease_s,
        sandbox=sandbox,
        secrets=lambda tenant: revealed(vault, tenant),
        git=access,
        forward=forward,
    )
    return Worker(parts, jobs)


def sender_of(service: Service) -> Sender:
    """Return what sends the events of all tenants to their webhooks."""
    return Sender(service.records, service.webhook_key, service.repositories.allow_networks)


def work(worker: Worker, sender: Sender, is_over: Callable[[], bool] = lambda: False) -> None:
    """Run a worker, and send webhooks beside, until SIGTERM or SIGINT; then drain it.

    `is_over`: ends it too once it returns true; asked each second.
    """
    stop = threading.Event()

    def drain() -> None:
        stop.set()
        worker.drain()

    def send() -> None:
        while not stop.is_set():
            try:
                sender.run(stop)
            except Exception:  # noqa: BLE001  one webhook that cannot be sent may not stop the others
                _log.exception("webhooks: an error; continued in %g s", RESTART_S)
                stop.wait(RESTART_S)

    def watch() -> None:
        while not stop.wait(LOOK_S):
            if is_over():
                drain()

    threads = [threading.Thread(target=each, name=name) for name, each in {"webhooks": send, "end": watch}.items()]
    with signals_handled(lambda _number, _frame: drain(), signal.SIGTERM, signal.SIGINT):
        for thread in threads:
            thread.start()
        try:
            worker.run()
        finally:
            stop.set()
            for thread in threads:
                thread.join()
