"""`evolverpc service api`: serve the HTTP API."""

import logging
from functools import partial
from typing import Annotated

import typer

from gepa_client.views.console import refuse
from gepa_service.api.request_log import configure_logs
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
from gepa_service.cli.service_configuration import ConfigurationError, opened_service, read_github_app


def api(
    database: Database = DEFAULT_DATABASE,
    journals: Journals = DEFAULT_JOURNALS,
    host: Host = "127.0.0.1",
    port: Port = 8600,
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
    from gepa_service.cli.api_server import serve  # a second of imports, which `--help` does not need

    try:
        with opened_service(
            database,
            journals,
            public_url or f"http://{host}:{port}",
            allow_local=allow_local,
            allow_networks=allow_network or (),
            github=None if github_app is None else partial(read_github_app, github_app),
            oidc=oidc or (),
        ) as service:
            configure_logs("api", logging.INFO)
            serve(service, host, port)
    except ConfigurationError as error:
        refuse(str(error))
