"""Make a dispatcher and its engine from what an operator configures, and run it."""

import importlib.util
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from evolverpc_common.installation import installed_version
from gepa_client.settings.run_settings import SandboxKind
from gepa_service.cli.arguments import LOCAL, MODAL
from gepa_service.engines.engine import Engine, EngineRefused, LocalEngine
from gepa_service.engines.ray_engine import RayEngine
from gepa_service.jobs.attempt import Attempt, check_api, run_on_node
from gepa_service.jobs.attempt_records import AttemptRecords
from gepa_service.jobs.deletion import DeletedFiles
from gepa_service.jobs.dispatcher import Dispatcher, Queue
from gepa_service.jobs.dispatcher_lease import DispatcherLease, holder_in
from gepa_service.jobs.job_environment import Forward, Place
from gepa_service.jobs.shared_processes import SharedProcesses
from gepa_service.model.work import Work
from gepa_service.service import Service
from gepa_service.webhooks import Sender

PRIVATE = 0o700


def place_of(*, api: str, folder: Path, sandbox: SandboxKind, forward: Forward | None = None) -> Place:
    """Return where attempts run: on this machine, or with the same paths on each node of an engine."""
    files = folder.resolve()
    return Place(api.rstrip("/"), files / "jobs", files / "cache", sandbox, forward)


@contextmanager
def opened_dispatcher(
    service: Service, place: Place, at_once: int, engine: str = LOCAL, *, keep_warm: bool = True
) -> Iterator[Dispatcher]:
    """Open a dispatcher for the block. Attempts of the local engine hand their work back at its end.

    `engine`: `local`, `modal`, or the address of a Ray cluster. `at_once`: attempts at the same time, in each lane.
    `keep_warm`: as of `SharedProcesses`.

    Raises:
        OSError: the folder of works cannot be used. EngineRefused: the engine cannot.
    """
    for path in (place.folder, place.cache):
        path.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    # at Modal each sandbox costs money, and those of a process that was killed would run on
    keep_warm = keep_warm and place.sandbox != "modal"
    with holder_in(place.folder) as holder, SharedProcesses(place.folder, keep_warm=keep_warm) as shared:
        made = engine_of(engine, service, place, shared)

        def figures() -> dict[str, int]:
            return {"warm": shared.warm, "nodes": made.nodes}

        with DispatcherLease(service.records, holder, figures=figures) as lease, made:
            yield Dispatcher(service.records, Queue(service.records, at_once), made, lease)


def engine_of(name: str, service: Service, place: Place, shared: SharedProcesses) -> Engine:
    """Return the engine of a name, as of `opened_dispatcher`. `shared`: of attempts on this machine."""
    if name == LOCAL:

        def attempt(work: Work, stop: threading.Event) -> None:
            Attempt(place, AttemptRecords(service, work.tenant, work.id, work.attempts), shared, stop).run()

        return LocalEngine(attempt)

    check_api(place.api)

    def token(work: Work) -> str:
        return service.job_tokens.issue(work, role="attempt")

    version = installed_version()
    if name == MODAL:
        if importlib.util.find_spec("modal") is None:
            raise EngineRefused("Modal is not installed: pip install 'evolverpc[modal]'")
        from gepa_service.engines.modal import ModalEngine

        return ModalEngine(lambda work: (work.id, token(work), place.api, version))
    return RayEngine(name, run_on_node, lambda work: (work.id, token(work), place, version))


def dispatch(
    service: Service,
    place: Place,
    at_once: int,
    stop: threading.Event,
    engine: str = LOCAL,
    keep_days: float | None = None,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Dispatch work, and send webhooks beside, until `stop` is set; then hand back what runs on this machine.

    `keep_days`: as of `DeletedFiles`. `ready`: called once the engine is open. `engine`, and what is raised: as of
    `opened_dispatcher`; and JournalError: the store of runs cannot be opened.
    """
    sender = Sender(service.records, service.webhook_key, service.repositories.allow_networks)
    files = DeletedFiles(service.records, service.store, place, keep_days)
    beside = {"webhooks": sender.run, "deleted files": files.run}
    threads = [threading.Thread(target=each, args=(stop,), name=name) for name, each in beside.items()]
    with opened_dispatcher(service, place, at_once, engine) as dispatcher:
        for thread in threads:
            thread.start()
        ready()
        try:
            dispatcher.run(stop)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
