"""The HTTP application: `POST /rpc` and `GET /health`, for requests with its token and an allowed `Host` and `Origin`.

Others are refused before their body is read.
"""

import asyncio
import hashlib
import hmac
import logging
import socket
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aiohttp import HttpVersion11, web
from aiohttp.http import HttpProcessingError
from aiohttp.typedefs import Handler
from multidict import MultiMapping

from evolverpc_common.open_connections import CountedConnection, OpenConnections
from protocol.errors import InternalError, InvalidRequest, LimitExceeded, ParseError, RpcError, Unauthorized
from rpc_server.dispatch import error_body
from rpc_server.methods.dataset_rows import Datasets
from rpc_server.methods.service import Service
from rpc_server.program.program import Program
from rpc_server.settings import Settings

if TYPE_CHECKING:
    from rpc_server.mutations.transaction import CodeMutations


logger = logging.getLogger(__name__)

SERVICE: web.AppKey[Service] = web.AppKey("service", Service)
"""The key of an application's service."""

_TOKEN_HEADER = "X-Gepa-Token"  # noqa: S105  # the name of a header, not a token
"""Carries the token if a proxy uses `Authorization`."""

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")

_CONTINUE = "100-continue"
_HEADERS = {"Content-Type": "application/json", "Server": "evolverpc"}
_SHUTDOWN_S = 1.0
_IDLE_S = 75.0
"""Seconds that a connection may be idle between requests, before its first, and within a body."""

_LINGER_S = 1.0
"""Seconds that a refused body may continue, so that its sender can read the response."""


def create_app(
    program: Program,
    settings: Settings,
    *,
    token: str,
    datasets: Datasets | None = None,
    mutations: "CodeMutations | None" = None,
) -> web.Application:
    """Return an application that answers for a running program, which the caller opened and closes."""
    service = Service(program, settings, datasets if datasets is not None else Datasets(), mutations)
    handlers = _HttpHandlers(service, token=token, bound_host=settings.host, allowed_hosts=settings.allowed_hosts)
    app = web.Application()
    app[SERVICE] = service
    for path, handler in (("/rpc", handlers.rpc), ("/health", handlers.health), ("/{path:.*}", handlers.not_found)):
        app.router.add_route("*", path, handlers.authorized(handler), expect_handler=_defer_expect)
    app.on_shutdown.append(lambda _: service.close())
    return app


@asynccontextmanager
async def listening(app: web.Application, sock: socket.socket) -> AsyncIterator[None]:
    """Serve on a bound socket; a client that closes its connection cancels its call."""
    # aiohttp's warnings about input that is not HTTP concern the sender only.
    http_logger = logging.getLogger(f"{__name__}.http")
    http_logger.addFilter(_is_defect)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=_SHUTDOWN_S)
    await runner.setup()
    loop = asyncio.get_running_loop()
    connections = OpenConnections()

    def connected() -> _ServerConnection:
        return _ServerConnection(
            connections,
            runner.server,
            loop=loop,
            logger=http_logger,
            access_log=None,
            keepalive_timeout=_IDLE_S,
            lingering_time=_LINGER_S,
            auto_decompress=False,  # a body with a Content-Encoding is refused, so none is ever unpacked
        )

    try:
        if sock.family == getattr(socket, "AF_UNIX", None):
            # The process that created the socket file removes it; from 3.13 on the loop would.
            kept: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
            listener = await loop.create_unix_server(connected, sock=sock, **kept)
        else:
            listener = await loop.create_server(connected, sock=sock)
        try:
            yield
        finally:
            listener.close()
    finally:
        await runner.cleanup()


class _ServerConnection(CountedConnection):
    """Answers what is not HTTP without quoting it: an unreadable line may hold a token."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002  # it would quote the input
    ) -> web.StreamResponse:
        response = super().handle_error(request, status, exc, "")
        response.headers["Server"] = _HEADERS["Server"]
        return response


class _HttpHandlers:
    """The handlers of the routes. A foreign `Host` may be a rebound DNS name; an `Origin` is a page in a browser."""

    def __init__(self, service: Service, *, token: str, bound_host: str, allowed_hosts: Iterable[str]) -> None:
        self._service = service
        self._token = _digest(token)
        bound = f"[{bound_host}]" if ":" in bound_host else bound_host
        self._origins = frozenset(host for host in allowed_hosts if "://" in host)
        self._hosts = frozenset(host.lower() for host in {*_LOOPBACK_NAMES, bound, *allowed_hosts} - self._origins)

    def _check_source(self, headers: MultiMapping[str]) -> None:
        """Accept an allowed host with any port, or an allowed `name:port`, and no foreign origin.

        Raises `Unauthorized`.
        """
        host, origin = (_value(headers, "Host") or "").lower(), _value(headers, "Origin")
        if host not in self._hosts and _without_port(host) not in self._hosts:
            raise Unauthorized(reason="host")
        if origin is not None and origin not in self._origins:
            raise Unauthorized(reason="origin")

    def _check_token(self, headers: MultiMapping[str]) -> None:
        """Accept `X-Gepa-Token: <token>`, or without that header `Authorization: Bearer <token>`.

        The time taken reveals nothing of the token. Raises `Unauthorized`.
        """
        given = _value(headers, _TOKEN_HEADER)
        if given is None:
            scheme, _, given = (_value(headers, "Authorization") or "").partition(" ")
        else:
            scheme = "bearer"
        # Digests have one length, so that not even the token's length shows in the time taken.
        if not hmac.compare_digest(_digest(given.strip()), self._token) or scheme.lower() != "bearer":
            raise Unauthorized

    def authorized(self, handler: Handler) -> Handler:
        """Return the handler behind the check of a request's source; it may raise `Unauthorized` too."""

        async def checked(request: web.Request) -> web.StreamResponse:
            try:
                self._check_source(request.headers)
                return await handler(request)
            except Unauthorized as error:
                return _unauthorized(error)

        return checked

    async def rpc(self, request: web.Request) -> web.Response:
        """Handle `POST /rpc`."""
        headers = request.headers
        try:
            if request.method != "POST":
                return _error_response(405, InvalidRequest(reason="use POST"), {"Allow": "POST"})
            self._check_token(headers)
            if request.content_type != "application/json":
                return _error_response(415, InvalidRequest(reason="the content type must be application/json"))
            if headers.get("Content-Encoding", "identity").strip().lower() != "identity":
                return _error_response(415, InvalidRequest(reason="the body must have no Content-Encoding"))
            if headers.get("Expect", _CONTINUE).strip().lower() != _CONTINUE:
                return _error_response(417, InvalidRequest(reason="the only Expect that is met is 100-continue"))
            # The body has no name here, so that the dispatcher can free it once it is parsed.
            reply = await self._service.dispatcher.answer(await self._body(request))
        except Unauthorized:
            raise
        except LimitExceeded as error:
            return _error_response(413, error)
        except (web.RequestPayloadError, TimeoutError):
            return _error_response(400, ParseError(reason="the body does not match its headers"))
        except Exception:
            logger.exception("unexpected error")
            return _error_response(500, InternalError())
        if reply.body is None:
            return web.Response(status=reply.status, headers={"Server": _HEADERS["Server"]})
        return web.Response(status=reply.status, body=reply.body, headers=_HEADERS)

    async def health(self, request: web.Request) -> web.Response:
        """Handle `GET /health`: whether a program can answer, and nothing else."""
        if request.method not in ("GET", "HEAD"):
            return _error_response(405, InvalidRequest(reason="use GET"), {"Allow": "GET, HEAD"})
        if self._service.ready:
            return web.Response(status=200, body=b'{"status":"ok"}', headers=_HEADERS)
        return web.Response(status=503, body=b'{"status":"unavailable"}', headers=_HEADERS)

    async def not_found(self, _request: web.Request) -> web.Response:
        """Handle any other path."""
        return _error_response(404, InvalidRequest(reason="the path must be /rpc"))

    async def _body(self, request: web.Request) -> bytearray:
        """Read the body within the limit, checked by its declared length and as it arrives."""
        allowed = self._service.limits.max_request_bytes
        declared = request.content_length
        if declared is not None and declared > allowed:
            raise LimitExceeded(limit="max_request_bytes", allowed=allowed, given=declared)
        if "Expect" in request.headers and request.version == HttpVersion11:
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            # Not part of the response, whose headers are yet to come.
            request.writer.output_size = 0
        # One growing buffer: joining pieces would need the memory of a large body twice.
        growing = bytearray()
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(_IDLE_S) as silence:
            while chunk := await request.content.readany():
                silence.reschedule(loop.time() + _IDLE_S)
                growing += chunk
                if len(growing) > allowed:
                    raise LimitExceeded(limit="max_request_bytes", allowed=allowed)
        return growing


async def _defer_expect(_request: web.Request) -> None:
    """Request the body only after the headers are accepted."""


def _is_defect(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


def _unauthorized(error: Unauthorized) -> web.Response:
    if "reason" in error.details:
        return _error_response(403, error)
    return _error_response(401, error, {"WWW-Authenticate": "Bearer"})


def _error_response(status: int, error: RpcError, headers: dict[str, str] | None = None) -> web.Response:
    response = web.Response(status=status, body=error_body(error), headers={**_HEADERS, **(headers or {})})
    # An unread body must not be parsed as the next request.
    response.force_close()
    return response


def _value(headers: MultiMapping[str], name: str) -> str | None:
    """Join all values of a header as HTTP does: a header sent twice matches no single allowed value."""
    values = headers.getall(name, None)
    return None if values is None else ", ".join(values)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host
