"""Connections to the server of the page: a bounded number, each with a bounded time for its request."""

import asyncio
from collections.abc import Callable
from typing import cast
from weakref import WeakSet

from aiohttp import web

MOST = 100
"""Open connections. A browser has six for each page."""

BACKLOG = 32
"""Connections that wait to be accepted; asyncio accepts as many at once, each with a file descriptor."""

REQUEST_S = 10.0
"""Seconds in which the head of a request must arrive, and then its body."""

LINGER_S = 1.0
"""Seconds for which the rest of a refused body is read, so that its sender receives the answer."""

REFUSED_S = 0.1
"""Seconds for which a refused connection may take to send its request."""

Answer = Callable[[int, str], web.Response]
"""Makes the answer for a status and a message."""


class Connections:
    """Makes the protocol of each new connection to `server`. `error`: makes the answers to what is no request."""

    def __init__(self, server: web.Server, error: Answer) -> None:
        self._server, self._error = server, error
        self._open: WeakSet[_Connection] = WeakSet()

    def __call__(self) -> asyncio.Protocol:
        """Return the protocol of one connection."""
        if len(self._open) >= MOST:
            return _Refused(self._error(503, f"{MOST} connections are open already; close pages of this run"))
        made = _Connection(self._server, self._error, self._open.discard)
        self._open.add(made)
        return made


class _Connection(web.RequestHandler):
    """A connection that is closed if no head of a request arrives in time."""

    def __init__(self, server: web.Server, error: Answer, lost: Callable[["_Connection"], None]) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # None turns it off
            keepalive_timeout=REQUEST_S,
            lingering_time=LINGER_S,
        )
        self._error, self._lost = error, lost

    def connection_lost(self, exc: BaseException | None) -> None:
        self._lost(self)
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the answer to bytes that are no request of HTTP."""
        del request, exc, message  # the message may repeat what was sent
        answer = self._error(status, "this is no request of HTTP")
        answer.force_close()
        return answer


class _Refused(asyncio.Protocol):
    """A connection beyond the number: it gets `answer` and is closed."""

    def __init__(self, answer: web.Response) -> None:
        self._answer = answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        body = cast("bytes", self._answer.body)
        headers = {**self._answer.headers, "Content-Length": str(len(body)), "Connection": "close"}
        lines = [f"HTTP/1.1 {self._answer.status} {self._answer.reason}", *(f"{k}: {v}" for k, v in headers.items())]
        open_ = cast("asyncio.Transport", transport)
        open_.write("\r\n".join([*lines, "", ""]).encode() + body)
        self._end = asyncio.get_running_loop().call_later(REFUSED_S, open_.close)
        self._transport = open_

    def data_received(self, data: bytes) -> None:
        del data
        self._transport.close()  # closed with its request unread, it would be reset and lose the answer

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._end.cancel()
