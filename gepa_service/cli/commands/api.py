"""`evolverpc service api`: serve the HTTP API."""

import functools
import gc
import resource
from pathlib import Path
from typing import Annotated

import typer

from gepa_client.views.console import refuse
from gepa_service.cli.arguments import DEFAULT_DATABASE, Database, Oidc
from gepa_service.cli.service_parts import ConfigurationError, opened_service

DEFAULT_JOURNALS = "service-data/journals.db"
SHUTDOWN_S = 5
BACKLOG = 2048
KEEP_ALIVE_S = 15


def api(
    database: Database = DEFAULT_DATABASE,
    journals: Annotated[
        str,
        typer.Option(
            envvar="GEPA_SERVICE_JOURNALS", metavar="FILE|URL", help="The store of runs, as --store elsewhere."
        ),
    ] = DEFAULT_JOURNALS,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")] = 8600,
    descriptor: Annotated[
        int | None, typer.Option("--fd", min=3, help="A listening socket that it inherited, instead of both.")
    ] = None,
    public_url: Annotated[
        str | None,
        typer.Option(
            envvar="GEPA_SERVICE_PUBLIC_URL", metavar="URL", help="By which it is reached (default http://HOST:PORT)."
        ),
    ] = None,
    allow_local: Annotated[
        bool, typer.Option("--allow-local", help="Let tenants connect repositories in folders of this machine.")
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
    oidc: Oidc = None,
) -> None:
    """Serve the HTTP API until SIGTERM; requests in flight end first, and streams are closed."""
    gc.disable()  # as in `main`
    import uvicorn  # with the application a second of imports, which `--help` does not need

    from evolverpc_common.open_connections import OpenConnections
    from gepa_service.api.app import create_app
    from gepa_service.api.connections import BoundedConnection

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
            gc.freeze()  # what is loaded now stays: a collection that looks through it stops all requests for 50 ms
            most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
            uvicorn.run(
                app,
                http=functools.partial(BoundedConnection, OpenConnections()),  # type: ignore[arg-type]  # called alike
                host=host,
                port=port,
                fd=descriptor,
                log_level="info" if descriptor is None else "warning",
                access_log=False,
                server_header=False,
                backlog=BACKLOG,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=SHUTDOWN_S,
            )
    except ConfigurationError as error:
        refuse(str(error))
