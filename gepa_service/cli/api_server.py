"""Serve the API by uvicorn, with bounded connections: in this thread, or in one beside other work."""

import functools
import gc
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from evolverpc_common.open_connections import OpenConnections, raise_descriptor_limit
from gepa_service.api.app import create_app
from gepa_service.api.app_state import Service
from gepa_service.api.connections import BoundedConnection
from gepa_service.cli.listening import BACKLOG
from gepa_service.cli.service_parts import ConfigurationError

SHUTDOWN_S = 5
KEEP_ALIVE_S = 15
MOST_DESCRIPTORS = 2**20
LOOK_S = 0.02


def serve(service: Service, host: str, port: int) -> None:
    """Serve until SIGTERM or SIGINT."""
    app = create_app(service)
    _prepare()
    uvicorn.run(app, host=host, port=port, **_options())


@contextmanager
def served(service: Service, sock: socket.socket, ended: Callable[[], None]) -> Iterator[None]:
    """Serve in a thread for the block. `ended`: called there at its end, also if it fails.

    Raises:
        ConfigurationError: it cannot start.
    """
    server = uvicorn.Server(uvicorn.Config(create_app(service), **_options()))

    def run() -> None:
        try:
            server.run([sock])
        finally:
            ended()

    _prepare()
    thread = threading.Thread(target=run, name="api")
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise ConfigurationError("the API cannot start; the reason is in the lines above")
            time.sleep(LOOK_S)
        yield
    finally:
        server.should_exit = True
        thread.join()


def _prepare() -> None:
    """Prepare this process, once the application is made."""
    gc.freeze()  # what is loaded now stays: a collection that looks through it stops all requests for 50 ms
    raise_descriptor_limit(MOST_DESCRIPTORS)


def _options() -> dict[str, Any]:
    return {
        "http": functools.partial(BoundedConnection, OpenConnections()),
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "backlog": BACKLOG,
        "timeout_keep_alive": KEEP_ALIVE_S,
        "timeout_graceful_shutdown": SHUTDOWN_S,
    }
