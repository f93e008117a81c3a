"""Connections to the API: a request must arrive in time, and slow connections make room for others.

uvicorn waits for a request's head and body without end.
"""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from evolverpc_common.open_connections import OpenConnections

ARRIVAL_S = 10.0
"""Seconds that a request may take to arrive, and its body more: what it takes at `SLOWEST`."""

SLOWEST = 8 << 10
"""Bytes a second of a body."""


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
