"""Connections to the server of the page: a request must arrive in time, and idle ones make room for others."""

import asyncio
import functools
from collections.abc import Callable

from aiohttp import web

from evolverpc_common.http_connection import CountedConnection
from evolverpc_common.open_connections import OpenConnections

BACKLOG = 32
"""Connections that wait to be accepted; asyncio accepts as many at once, each with a file descriptor."""

REQUEST_S = 10.0
"""Seconds in which the head of a request must arrive, and then its body."""

LINGER_S = 1.0
"""Seconds for which the rest of a refused body is read, so that its sender receives the answer."""

Answer = Callable[[int, str], web.Response]
"""Makes the answer for a status and a message."""


def connecting(server: web.Server, error: Answer) -> Callable[[], asyncio.Protocol]:
    """Return what makes the protocol of each new connection. `error`: makes the answers to what is no request."""
    return functools.partial(_PageConnection, server, OpenConnections(), error)


class _PageConnection(CountedConnection):
    """A connection that is closed if no head of a request arrives in time."""

    __slots__ = ("_error",)

    def __init__(self, server: web.Server, connections: OpenConnections, error: Answer) -> None:
        super().__init__(
            connections,
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,
            keepalive_timeout=REQUEST_S,
            lingering_time=LINGER_S,
        )
        self._error = error

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        del request, exc, message  # the message may repeat what was sent
        answer = self._error(status, "this is no request of HTTP")
        answer.force_close()
        return answer
