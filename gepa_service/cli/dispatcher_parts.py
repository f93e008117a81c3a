"""Make a dispatcher with the local engine from what an operator configures, and run it until a signal."""

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from evolverpc_common.signal_handlers import signals_handled
from gepa_client.journal.store import Store
from gepa_client.settings.run_settings import SandboxKind
from gepa_service.api.app_state import Service
from gepa_service.auth.job_tokens import JobTokens
from gepa_service.engines.local import LocalEngine
from gepa_service.jobs.attempt import Attempt
from gepa_service.jobs.dispatcher import Dispatcher
from gepa_service.jobs.dispatcher_lease import DispatcherLease, holder_in
from gepa_service.jobs.front_port import Forward
from gepa_service.jobs.git_access import GitAccess
from gepa_service.jobs.month_spending import month_limit
from gepa_service.jobs.parts import AttemptParts
from gepa_service.jobs.queue import Queue
from gepa_service.jobs.tenant_secrets import revealed
from gepa_service.model.work import Work
from gepa_service.webhooks.sender import Sender

PRIVATE = 0o700
RESTART_S = 5.0
LOOK_S = 1.0
_log = logging.getLogger(__name__)


def attempt_parts(
    service: Service, store: Store, *, api: str, folder: Path, sandbox: SandboxKind, forward: Forward | None = None
) -> AttemptParts:
    """Return the parts of attempts on this machine. Raises `OSError`: the folder cannot be made."""
    assert service.vault is not None  # noqa: S101  `opened_service` makes one
    vault = service.vault
    for path in (folder, folder / "cache"):
        path.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    return AttemptParts(
        records=service.records,
        journals=store,
        tokens=JobTokens(service.records, [each.value for each in vault.masters]),
        api=api.rstrip("/"),
        folder=folder.resolve() / "jobs",
        cache=folder.resolve() / "cache",
        sandbox=sandbox,
        secrets=lambda tenant: revealed(vault, tenant),
        git=GitAccess(service.records, service.repositories, service.github),
        forward=forward,
    )


@contextmanager
def opened_dispatcher(parts: AttemptParts, at_once: int) -> Iterator[Dispatcher]:
    """Open a dispatcher with the local engine for the block; attempts hand their work back at its end.

    `at_once`: as of `LocalEngine`. Raises `OSError`: the folder of works cannot be used.
    """
    limit = month_limit(parts.records, parts.journals)

    def attempt(work: Work, stop: threading.Event) -> None:
        Attempt(parts, work, stop, limit.is_reached).run()

    with (
        holder_in(parts.folder) as holder,
        DispatcherLease(parts.records, holder, warm=lambda: parts.hosts.warm) as lease,
        parts.hosts,
        LocalEngine(attempt, at_once) as engine,
    ):
        yield Dispatcher(parts.records, Queue(parts.records, limit.is_reached), engine, lease)


def sender_of(service: Service) -> Sender:
    """Return what sends the events of all tenants to their webhooks."""
    return Sender(service.records, service.webhook_key, service.repositories.allow_networks)


def dispatch(
    parts: AttemptParts, at_once: int, sender: Sender, is_over: Callable[[bool], bool] = lambda _busy: False
) -> None:
    """Dispatch work, and send webhooks beside, until SIGTERM or SIGINT; then hand back what runs.

    `is_over`: ends it too once it returns true; asked each second, given `Dispatcher.is_busy`.
    """
    stop = threading.Event()

    def send() -> None:
        while not stop.is_set():
            try:
                sender.run(stop)
            except Exception:  # noqa: BLE001  one webhook that cannot be sent may not stop the others
                _log.exception("webhooks: an error; continued in %g s", RESTART_S)
                stop.wait(RESTART_S)

    def watch() -> None:
        while not stop.wait(LOOK_S):
            if is_over(dispatcher.is_busy):
                stop.set()

    threads = [threading.Thread(target=each, name=name) for name, each in {"webhooks": send, "end": watch}.items()]
    with (
        signals_handled(lambda _number, _frame: stop.set(), signal.SIGTERM, signal.SIGINT),
        opened_dispatcher(parts, at_once) as dispatcher,
    ):
        for thread in threads:
            thread.start()
        try:
            dispatcher.run(stop)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
