"""Serve the API by uvicorn, with bounded connections: in this thread, or in one beside other work."""

import asyncio
import functools
import gc
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from evolverpc_common.open_connections import OpenConnections, raise_descriptor_limit
from gepa_service.api.app import create_app
from gepa_service.cli.service_configuration import BACKLOG, ConfigurationError
from gepa_service.service import Service

SHUTDOWN_S = 5
KEEP_ALIVE_S = 15
MOST_DESCRIPTORS = 2**20
LOOK_S = 0.02

ARRIVAL_S = 10.0
"""Seconds that a request may take to arrive, and its body more: what it takes at `SLOWEST`."""

SLOWEST = 8 << 10
"""Bytes a second of a body."""


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


class BoundedConnection(H11Protocol):
    """A connection. `open_`: all of the server, which are shared."""

    def __init__(self, open_: OpenConnections, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._open = open_
        self._late: asyncio.TimerHandle | None = None
        self._began = 0.0
        self._received = 0

    @property
    def idle(self) -> bool:
        """Whether no request that has arrived whole is being answered."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def force_close(self) -> None:
        """Close it at once."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._open.opened(self)
        self._begin()

    def data_received(self, data: bytes) -> None:
        """Take what has arrived, and wait for the rest of a request that is incomplete."""
        self._open.used(self)
        self._received += len(data)
        super().data_received(data)
        if not self._is_incomplete():
            self._end()
        elif self._late is None:
            self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._end()
        self._open.closed(self)
        super().connection_lost(exc)

    def _is_incomplete(self) -> bool:
        """Return whether a part of a request has arrived, and the rest has not."""
        return self.conn.their_state is h11.SEND_BODY or (
            self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])
        )

    def _begin(self) -> None:
        self._began, self._received = self.loop.time(), 0
        self._late = self.loop.call_later(ARRIVAL_S, self._check)

    def _end(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _check(self) -> None:
        is_read = self.cycle is not None and not self.cycle.response_complete  # what is refused gets no more time
        until = self._began + ARRIVAL_S + (self._received / SLOWEST if is_read else 0.0)
        if is_read and self.flow.read_paused:  # it waits for us
            until = self.loop.time() + ARRIVAL_S
        if self.loop.time() >= until:
            self.force_close()
        else:
            self._late = self.loop.call_at(until, self._check)
