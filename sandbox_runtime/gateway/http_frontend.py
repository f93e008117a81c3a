"""Accept HTTP from sandboxes and identify the sandbox by its token before anything else."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import orjson
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from sandbox_runtime.gateway.session import CONNECTIONS, SandboxGatewaySession

KEEPALIVE_S = 75.0
"""Longer than clients keep an unused connection, so that none is used while it closes."""

UNIDENTIFIED_TIMEOUT_S = 10.0
"""How long a connection may stay open without a valid token."""

HOST_PATH = re.compile(r"/_hosts/(?P<token>[^/?]*)/?(?P<host>[^/?]*)(?P<rest>.*)", re.DOTALL)
"""The path of a request to a host with a secret header. It holds the token, so that any HTTP client can send it."""

Find = Callable[[str], SandboxGatewaySession | None]
"""Returns the session that a token belongs to, None if it belongs to none that may connect here."""

Answer = Callable[[web.BaseRequest, SandboxGatewaySession], Awaitable[web.StreamResponse]]


def failure(status: int, kind: str, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """Return an error in a form that the clients of every dialect parse."""
    error = {"type": kind, "code": kind, "message": message, "param": None}
    body = orjson.dumps({"type": "error", "error": error})
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)


_log = logging.getLogger(__name__)


class HttpFrontend:
    """The HTTP connections of one listener. Calls `wrong_token` for a wrong token, `malformed` for invalid HTTP."""

    def __init__(
        self, find: Find, wrong_token: Callable[[], None], malformed: Callable[[], None], answer: Answer
    ) -> None:
        self._find = find
        self._wrong_token = wrong_token
        self._answer = answer
        self._log = _ServerLog(malformed)
        self._server = web.Server(self._handle, handler_cancellation=True)

    def connect(self, ended: Callable[[], None]) -> asyncio.BaseProtocol:
        """Return the protocol of one connection."""
        return _HttpConnection(
            *(self._server, ended),
            loop=asyncio.get_running_loop(),
            keepalive_timeout=KEEPALIVE_S,
            lingering_time=1.0,
            access_log=cast("Any", None),  # calls are reported elsewhere, and tokens never
            auto_decompress=False,
            logger=self._log,
        )

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        shown = tokens(request)
        session = next(filter(None, map(self._find, shown)), None)
        connection, transport = request.protocol, request.transport
        if session is None or transport is None or not isinstance(connection, _HttpConnection):
            if shown:
                self._wrong_token()
            response: web.StreamResponse = failure(401, "authentication_error", "this is not the sandbox's token")
            response.force_close()
            return response
        connection.admit()
        if len(session.models) >= CONNECTIONS:
            headers = {"Retry-After": "1"}
            response = failure(429, "rate_limit_error", f"more than {CONNECTIONS} requests at once", headers)
            response.force_close()
            return response
        # For this request alone: behind a forwarder, the next one on the connection may be another sandbox's.
        session.models.add(transport)
        try:
            with session.at_work():
                return await self._answer(request, session)
        finally:
            session.models.discard(transport)


class _ServerLog(logging.Logger):
    """The log of aiohttp's server, bounded: a sandboxed program decides how many requests fail.

    Malformed requests go to `malformed`; of other errors, each type is logged once with its traceback.
    """

    def __init__(self, malformed: Callable[[], None]) -> None:
        super().__init__(__name__, logging.ERROR)
        self._malformed = malformed
        self._logged: set[type[BaseException]] = set()

    def exception(self, msg: object, *args: object, exc_info: Any = True, **_: Any) -> None:
        """Log or count an error."""
        if isinstance(exc_info, HttpProcessingError | web.RequestPayloadError):
            self._malformed()
        elif isinstance(exc_info, BaseException) and type(exc_info) not in self._logged:
            self._logged.add(type(exc_info))
            _log.error(msg, *args, exc_info=exc_info)


class _HttpConnection(web.RequestHandler):
    """A connection that reports its loss, and is closed soon if it shows no token."""

    def __init__(self, server: web.Server, ended: Callable[[], None], **options: Any) -> None:
        super().__init__(server, **options)
        self._ended = ended
        self._limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the limit for connections without a token."""
        self._limit = asyncio.get_running_loop().call_later(UNIDENTIFIED_TIMEOUT_S, transport.close)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Report the loss."""
        self.admit()
        super().connection_lost(exc)
        self._ended()

    def admit(self) -> None:
        """Let the connection stay: it has shown a token."""
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None


def tokens(request: web.BaseRequest) -> list[str]:
    """Return every text that may be a token: in the address of a host, else wherever a client puts its key."""
    if match := HOST_PATH.fullmatch(request.raw_path):
        return [match["token"]]
    headers = request.headers
    found = [value for name in ("x-api-key", "api-key", "x-goog-api-key") if (value := headers.get(name))]
    scheme, _, value = headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        found.append(value.strip())
    return found
