"""`evolverpc service worker`: do the work of all tenants, until SIGTERM or Ctrl-C lets other workers continue them."""

import logging
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from gepa_client.errors import JournalError
from gepa_client.journal.store import open_store
from gepa_client.views.console import refuse
from gepa_service.cli.arguments import (
    DEFAULT_DATABASE,
    DEFAULT_JOURNALS,
    AllowLocal,
    AllowNetwork,
    Database,
    GitHubApp,
    Isolation,
    JobsAtOnce,
    Journals,
)
from gepa_service.cli.service_parts import ConfigurationError, opened_service
from gepa_service.cli.worker_parts import make_worker, sender_of, work
from gepa_service.jobs.worker import LEASE_S


def worker(
    database: Database = DEFAULT_DATABASE,
    journals: Journals = DEFAULT_JOURNALS,
    api: Annotated[
        str, typer.Option(envvar="GEPA_SERVICE_API", metavar="URL", help="The API, as this machine reaches it.")
    ] = "http://127.0.0.1:8600",
    folder: Annotated[Path, typer.Option(metavar="DIR", help="For the files of jobs.")] = Path("service-data/work"),
    jobs: JobsAtOnce = 2,
    sandbox: Isolation = "bubblewrap",
    lease_s: Annotated[
        float,
        typer.Option(min=1.0, metavar="S", help="Seconds without a sign of life after which others continue a job."),
    ] = LEASE_S,
    allow_local: AllowLocal = False,
    allow_network: AllowNetwork = None,
    github_app: GitHubApp = None,
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
            made = make_worker(service, store, api=api, folder=folder, jobs=jobs, sandbox=sandbox, lease_s=lease_s)
            work(made, sender_of(service))
    except (ConfigurationError, JournalError) as error:
        refuse(str(error))
    except OSError as error:
        refuse(f"{folder} cannot be used: {error.strerror or error}")
