"""`evolverpc service worker`: do the work of all tenants, until SIGTERM or Ctrl-C lets other workers continue them."""

import logging
from contextlib import closing
from pathlib import Path
from typing import Annotated, Literal

import typer

from gepa_client.errors import JournalError
from gepa_client.journal.store import open_store
from gepa_client.views.console import refuse
from gepa_service.cli.arguments import DEFAULT_DATABASE, Database
from gepa_service.cli.commands.api import DEFAULT_JOURNALS
from gepa_service.cli.service_parts import ConfigurationError, opened_service
from gepa_service.cli.worker_parts import WorkerOptions, make_worker, work
from gepa_service.jobs.worker import LEASE_S


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
    jobs: Annotated[
        int, typer.Option(min=1, metavar="N", help="Jobs at the same time, and as many batches and steps.")
    ] = 2,
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
            options = WorkerOptions(api=api, folder=folder, jobs=jobs, sandbox=sandbox, lease_s=lease_s)
            work(make_worker(service, store, options))
    except (ConfigurationError, JournalError) as error:
        refuse(str(error))
    except OSError as error:
        refuse(f"{folder} cannot be used: {error.strerror or error}")
