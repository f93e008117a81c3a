"""`evolverpc service api`: serve the HTTP API."""

import functools
import gc
import logging
from typing import Annotated

import typer

from gepa_client.views.console import refuse
from gepa_service.cli.arguments import (
    DEFAULT_DATABASE,
    DEFAULT_JOURNALS,
    AllowLocal,
    AllowNetwork,
    Database,
    GitHubApp,
    Host,
    Journals,
    Oidc,
    Port,
)
from gepa_service.cli.listening import BACKLOG
from gepa_service.cli.service_parts import ConfigurationError, opened_service

SHUTDOWN_S = 5
KEEP_ALIVE_S = 15
MOST_DESCRIPTORS = 2**20


def api(
    database: Database = DEFAULT_DATABASE,
    journals: Journals = DEFAULT_JOURNALS,
    host: Host = "127.0.0.1",
    port: Port = 8600,
    descriptor: Annotated[
        int | None, typer.Option("--fd", min=3, help="A listening socket that it inherited, instead of both.")
    ] = None,
    public_url: Annotated[
        str | None,
        typer.Option(
            envvar="GEPA_SERVICE_PUBLIC_URL", metavar="URL", help="By which it is reached (default http://HOST:PORT)."
        ),
    ] = None,
    allow_local: AllowLocal = False,
    allow_network: AllowNetwork = None,
    github_app: GitHubApp = None,
    oidc: Oidc = None,
) -> None:
    """Serve the HTTP API until SIGTERM; requests in flight end first, and streams are closed."""
    gc.disable()  # as in `main`
    import uvicorn  # with the application a second of imports, which `--help` does not need

    from evolverpc_common.open_connections import OpenConnections, raise_descriptor_limit
    from gepa_service.api.app import create_app
    from gepa_service.api.connections import BoundedConnection
    from gepa_service.api.request_log import configure_logs

    gc.enable()
    try:
        with opened_service(
            database,
            journals,
            public_url or f"http://{host}:{port}",
            allow_local=allow_local,
            allow_networks=allow_network or (),
            github_app=github_app,
            oidc=oidc or (),
        ) as service:
            app = create_app(service)
            configure_logs("api", logging.INFO if descriptor is None else logging.WARNING)
            gc.freeze()  # what is loaded now stays: a collection that looks through it stops all requests for 50 ms
            raise_descriptor_limit(MOST_DESCRIPTORS)
            uvicorn.run(
                app,
                http=functools.partial(BoundedConnection, OpenConnections()),  # type: ignore[arg-type]  # called alike
                host=host,
                port=port,
                fd=descriptor,
                log_config=None,
                access_log=False,
                server_header=False,
                backlog=BACKLOG,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=SHUTDOWN_S,
            )
    except ConfigurationError as error:
        refuse(str(error))
