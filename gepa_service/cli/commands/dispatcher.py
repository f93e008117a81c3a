"""`evolverpc service dispatcher`: do the work of all tenants, until SIGTERM or Ctrl-C has the next one continue it."""

import logging
import signal
import threading
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from evolverpc_common.processes import signals_handled
from gepa_client.errors import JournalError
from gepa_client.views.console import refuse
from gepa_service.api.request_log import configure_logs
from gepa_service.cli.arguments import (
    DEFAULT_DATABASE,
    DEFAULT_JOURNALS,
    LOCAL,
    AllowLocal,
    AllowNetwork,
    Database,
    EngineName,
    GitHubApp,
    Isolation,
    JobsAtOnce,
    Journals,
    KeepDays,
    sandbox_of,
)
from gepa_service.cli.dispatcher_and_engine import dispatch, place_of
from gepa_service.cli.service_configuration import ConfigurationError, opened_service, read_github_app
from gepa_service.engines.engine import EngineRefused


def dispatcher(
    database: Database = DEFAULT_DATABASE,
    journals: Journals = DEFAULT_JOURNALS,
    api: Annotated[
        str, typer.Option(envvar="GEPA_SERVICE_API", metavar="URL", help="The API, as this machine reaches it.")
    ] = "http://127.0.0.1:8600",
    folder: Annotated[Path, typer.Option(metavar="DIR", help="For the files of jobs.")] = Path("service-data/work"),
    jobs: JobsAtOnce = 2,
    sandbox: Isolation = None,
    engine: EngineName = LOCAL,
    allow_local: AllowLocal = False,
    allow_network: AllowNetwork = None,
    github_app: GitHubApp = None,
    keep_days: KeepDays = None,
) -> None:
    """Run jobs, batches and steps. One dispatcher of a database works; a further one waits to take over.

    SIGTERM hands the work of this machine back; that of a cluster continues.
    """
    kind = sandbox_of(sandbox, engine, api)
    configure_logs("dispatcher", logging.WARNING)
    stop = threading.Event()
    try:
        with (
            opened_service(
                database,
                journals,
                api,
                allow_local=allow_local,
                allow_networks=allow_network or (),
                github=None if github_app is None else partial(read_github_app, github_app),
            ) as service,
            signals_handled(lambda _number, _frame: stop.set(), signal.SIGTERM, signal.SIGINT),
        ):
            place = place_of(api=api, folder=folder, sandbox=kind)
            dispatch(service, place, jobs, stop, engine, keep_days)
    except (ConfigurationError, EngineRefused, JournalError) as error:
        refuse(str(error))
    except OSError as error:
        refuse(f"{folder} cannot be used: {error.strerror or error}")
