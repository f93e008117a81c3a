"""`gepa-service worker`: run the jobs of all tenants, until SIGTERM or Ctrl-C lets other workers continue them."""

import logging
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Literal

import typer

from gepa_client.cli.views.console import refuse
from gepa_client.errors import JournalError
from gepa_client.journal.store import open_store
from gepa_service.auth.job_tokens import JobTokens
from gepa_service.cli.arguments import DEFAULT_DATABASE, Database
from gepa_service.cli.commands.api import DEFAULT_JOURNALS
from gepa_service.cli.service_parts import ConfigurationError, opened_service
from gepa_service.jobs.attempt import WorkerParts
from gepa_service.jobs.git_access import GitAccess
from gepa_service.jobs.program_worker import Machine, ProgramWorker
from gepa_service.jobs.tenant_secrets import revealed
from gepa_service.jobs.worker import LEASE_S, Worker, worker_name
from gepa_service.secrets.vault import Vault
from gepa_service.webhooks.sender import Sender

PRIVATE = 0o700
RESTART_S = 5.0
_log = logging.getLogger(__name__)


def worker(
    database: Database = DEFAULT_DATABASE,
    journals: Annotated[
        str,
        typer.Option(
            envvar="GEPA_SERVICE_JOURNALS", metavar="FILE|URL", help="The store of runs, as --store elsewhere."
        ),
    ] = DEFAULT_JOURNALS,
    api: Annotated[
        str, typer.Option(envvar="GEPA_SERVICE_API", metavar="URL", help="The API, as this machine reaches it.")
    ] = "http://127.0.0.1:8600",
    folder: Annotated[Path, typer.Option(metavar="DIR", help="For the files of jobs.")] = Path("service-data/work"),
    jobs: Annotated[int, typer.Option(min=1, metavar="N", help="Jobs that run at the same time.")] = 2,
    sandbox: Annotated[
        Literal["bubblewrap", "process"],
        typer.Option(help="What isolates programs and optimizers; `process` isolates nothing."),
    ] = "bubblewrap",
    lease_s: Annotated[
        float,
        typer.Option(min=1.0, metavar="S", help="Seconds without a sign of life after which others continue a job."),
    ] = LEASE_S,
    allow_local: Annotated[
        bool, typer.Option("--allow-local", help="Read repositories in folders of this machine.")
    ] = False,
    allow_network: Annotated[
        list[str] | None,
        typer.Option(metavar="CIDR", help="A network that is reached besides public ones; repeatable."),
    ] = None,
    github_app: Annotated[
        Path | None,
        typer.Option(
            envvar="GEPA_SERVICE_GITHUB_APP", metavar="FILE", help="A TOML file that describes the GitHub App."
        ),
    ] = None,
) -> None:
    """Run jobs, batches of rollouts and single steps. SIGTERM lets other workers continue them."""
    logging.basicConfig(level=logging.WARNING, format="worker: %(levelname)s: %(message)s")
    try:
        with (
            opened_service(
                database,
                journals,
                api,
                allow_local=allow_local,
                allow_networks=allow_network or (),
                github_app=github_app,
            ) as service,
            closing(open_store(journals)) as store,
        ):
            assert service.vault is not None  # noqa: S101  `opened_service` makes one
            vault, name = service.vault, worker_name()
            access = GitAccess(service.records, service.repositories, service.github)
            for path in (folder, folder / "cache"):
                path.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
            parts = WorkerParts(
                name=name,
                records=service.records,
                journals=store,
                tokens=JobTokens(service.records, [each.value for each in vault.masters]),
                api=api.rstrip("/"),
                folder=folder.resolve() / "jobs",
                cache=folder.resolve() / "cache",
                lease_s=lease_s,
                sandbox=sandbox,
                secrets=lambda tenant: revealed(vault, tenant),
                git=access,
            )
            machine = Machine(
                sandbox=sandbox,
                policy=service.repositories,
                cache=folder.resolve() / "cache",
                secrets=lambda tenant, names: _named(vault, tenant, names),
                git_credentials=access.credentials,
            )
            sender = Sender(service.records, service.webhook_key, service.repositories.allow_networks)
            programs = ProgramWorker(service.records, machine, name)
            _work(Worker(parts, jobs), {"programs": programs.run, "webhooks": sender.run})
    except (ConfigurationError, JournalError) as error:
        refuse(str(error))
    except OSError as error:
        refuse(f"{folder} cannot be used: {error.strerror or error}")


def _work(jobs: Worker, beside: Mapping[str, Callable[[threading.Event], None]]) -> None:
    """Run jobs, and the others in threads, until a signal. `beside`: by name; each runs until the event is set."""
    stop = threading.Event()

    def drain(_number: int, _frame: object) -> None:
        stop.set()
        jobs.drain()

    def kept(name: str, run: Callable[[threading.Event], None]) -> None:
        while not stop.is_set():
            try:
                run(stop)
            except Exception:  # noqa: BLE001  one piece of work that cannot be done may not stop the others
                _log.exception("%s: an error; continued in %g s", name, RESTART_S)
                stop.wait(RESTART_S)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, drain)
    threads = [threading.Thread(target=kept, args=each, name=each[0]) for each in beside.items()]
    for thread in threads:
        thread.start()
    try:
        jobs.run()
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _named(vault: Vault, tenant: str, names: Sequence[str]) -> Mapping[str, str]:
    """Return those of these secrets of a tenant that there are."""
    found = revealed(vault, tenant).variables if names else {}
    return {name: found[name] for name in names if name in found}
