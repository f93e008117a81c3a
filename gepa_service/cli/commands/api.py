"""`gepa-service api`: serve the HTTP API, by the variables `GEPA_SERVICE_...`."""

import logging
import os
import socket
from typing import Annotated

import typer
import uvicorn

from gepa_service.api.app import create_app
from gepa_service.cli.listening import bound_socket, url_of
from gepa_service.cli.open_service import opened_service
from gepa_service.cli.operator_settings import OperatorError, read_operator_settings
from gepa_service.cli.printing import refuse

STREAMS_END_S = 3
"""Seconds that open streams may take to end."""


def api(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 for a free one.")] = 8080,
    descriptor: Annotated[
        int | None, typer.Option("--fd", min=3, help="A listening socket that was inherited, instead of both.")
    ] = None,
) -> None:
    """Serve the HTTP API until SIGTERM or Ctrl-C; any number of them share the databases.

    Settings are variables, which the workers share: GEPA_SERVICE_RECORDS, GEPA_SERVICE_JOURNALS,
    GEPA_SERVICE_PUBLIC_URL, one of GEPA_SERVICE_MASTER_KEY_FILE, _MASTER_KEY and _MASTER_KEY_COMMAND, and those in
    docs/guides/service.md.
    """
    logging.basicConfig(level=logging.WARNING, format="api: %(levelname)s: %(message)s")
    try:
        settings = read_operator_settings(os.environ)
        with (
            bound_socket(host, port) if descriptor is None else socket.socket(fileno=descriptor) as sock,
            opened_service(settings, os.environ) as service,
        ):
            if descriptor is None:
                print(
                    f"The API listens at {url_of(sock)}. Next: gepa-service worker, with the same variables", flush=True
                )
            config = uvicorn.Config(
                create_app(service),
                log_config=None,
                access_log=False,
                lifespan="on",
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=STREAMS_END_S,
            )
            uvicorn.Server(config).run(sockets=[sock])
    except OperatorError as error:
        refuse(str(error))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
