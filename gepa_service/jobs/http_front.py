"""The one port by which a job's driver, and its sandboxes at Modal, reach what they may: programs, journal, models.

The driver on this machine reaches the operator's OpenTelemetry collector too, whose key the front adds.

Paths begin with the name of a route. Each route leads to one server, which checks the tokens of its requests itself. A
program may repeat a secret that it was given, so routes to programs replace secrets in answers: the driver never sees
one, and what it records, and what a replay gives it, is what it saw.
"""

import contextlib
import re
import secrets
import socket
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import aiohttp
from aiohttp import web
from anyio.from_thread import start_blocking_portal
from multidict import CIMultiDict
from yarl import URL

from evolverpc_common.network_addresses import free_port
from evolverpc_common.redaction import Secrets
from gepa_client.transport.address import http_url
from gepa_client.transport.http_transport import connector
from gepa_service.jobs.messages import OTLP_ENDPOINT, OTLP_HEADERS, Front
from sandbox_runtime import SandboxError

PROGRAMS = "programs"
"""The route to the gateway of the programs."""

JOURNAL = "journal"
"""The route to the journal of the job."""

JOURNAL_HEADERS = frozenset({"authorization", "content-type", "content-length"})
EXPORT_HEADERS = ("Content-Type", "Content-Encoding", "Content-Length")
"""Headers of the driver that are forwarded to the collector."""

MOST_EXPORTED = 8 << 20
"""Bytes of one request to the collector."""

LONGEST_S = 120.0
"""Seconds of one request to the journal or the collector."""

CONNECT_S = 30.0
LARGEST_ANSWER = 64 << 20
"""Bytes of an answer in which secrets are replaced; the client of a server accepts no larger one."""

OF_ONE_HOP = (
    *("Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "TE", "Trailer"),
    *("Transfer-Encoding", "Upgrade"),
)


@dataclass(frozen=True)
class _Route:
    """`only`: the paths that may be requested, by POST alone; None: all requests. `key`: headers for the collector."""

    target: str
    secrets: Secrets | None = None
    only: re.Pattern[str] | None = None
    key: Mapping[str, str] | None = field(default=None, repr=False)


class HttpFront:
    """Forwards requests by the first part of their path. `url`: how it is reached from elsewhere."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._routes: dict[str, _Route] = {}
        self._clients: dict[str, aiohttp.ClientSession] = {}

    def route(self, name: str, target: str, secrets: Secrets | None = None) -> str:
        """Let a path of this name lead to the server `target`; return its address from elsewhere.

        `secrets`: are replaced in its answers.
        """
        self._routes[name] = _Route(target, secrets)
        return f"{self.url}/{name}"

    def route_to_journal(self, api: str, job_id: str) -> str:
        """Let a route lead to this job's journal, and to nothing else of the API; return the API's address there.

        Of the driver's headers it passes `JOURNAL_HEADERS` on.
        """
        self._routes[JOURNAL] = _Route(api, only=re.compile(rf"job/{re.escape(job_id)}/journal/[a-z_]+"))
        return f"{self.url}/{JOURNAL}"

    def route_to_collector(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Add the route to the operator's collector; return the variables with which the driver finds it.

        `variables`: as of `OptimizeOrder.collector`; without a collector none is returned. The front adds the headers:
        they hold the operator's key, which the driver must not have. The name of the route is random, as the front adds
        the key for everyone who knows it.
        """
        if not (target := variables.get(OTLP_ENDPOINT)):
            return {}
        pairs = (each.partition("=") for each in variables.get(OTLP_HEADERS, "").split(",") if "=" in each)
        key = {unquote(name.strip()): unquote(value.strip()) for name, _, value in pairs}
        name = f"collector-{secrets.token_hex(16)}"
        self._routes[name] = _Route(target, only=re.compile(r"v1/(traces|logs)"), key=key)
        return {OTLP_ENDPOINT: f"{self.url}/{name}"}

    @contextlib.asynccontextmanager
    async def listening(self, listener: socket.socket) -> AsyncIterator["HttpFront"]:
        """Answer on a listening socket, for the block."""
        application = web.Application(client_max_size=0)
        application.router.add_route("*", "/{path:.*}", self._forwarded)
        runner = web.AppRunner(application, access_log=None, handler_cancellation=True, auto_decompress=False)
        await runner.setup()
        try:
            await web.SockSite(runner, listener).start()
            yield self
        finally:
            await runner.cleanup()
            for client in self._clients.values():
                await client.close()

    async def _forwarded(self, request: web.Request) -> web.StreamResponse:
        name, _, rest = request.raw_path.removeprefix("/").partition("/")
        route = self._routes.get(name)
        if route is None:
            raise web.HTTPNotFound(text="the path begins with the name of no route")
        only = route.only
        if only is not None and (request.method != "POST" or only.fullmatch(rest) is None):
            raise web.HTTPForbidden(text="this request is not forwarded")
        if name not in self._clients:
            timeout = aiohttp.ClientTimeout(total=None if only is None else LONGEST_S, sock_connect=CONNECT_S)
            self._clients[name] = aiohttp.ClientSession(
                connector=connector(route.target),
                auto_decompress=False,
                timeout=timeout,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        to = URL(f"{http_url(route.target).rstrip('/')}/{rest}", encoded=True)
        if route.key is not None:
            return await _exported(request, self._clients[name], to, route.key)
        return await _answered(request, self._clients[name], to, route)


@contextlib.contextmanager
def fronted(front: Front | None) -> Iterator[tuple[dict[str, Any], HttpFront | None]]:
    """Open the front of a job at Modal for the block; yield the settings of a gateway that is reached through it, too.

    Raises:
        SandboxError: its port was taken since it was forwarded; another attempt gets another one.
    """
    if front is None:
        yield {}, None
        return
    opened = HttpFront(front.url)
    port = free_port()
    gateway = opened.route(PROGRAMS, f"http://127.0.0.1:{port}")
    try:
        listener = socket.create_server(("0.0.0.0", front.port))  # noqa: S104  Modal's forwarder comes from outside
    except OSError as error:
        raise SandboxError(f"port {front.port}, by which sandboxes reach this job, is taken: {error}") from error
    with listener, start_blocking_portal() as portal, portal.wrap_async_context_manager(opened.listening(listener)):
        yield {"gateway": f"{port}={gateway}"}, opened


async def _answered(request: web.Request, client: aiohttp.ClientSession, url: URL, route: _Route) -> web.StreamResponse:
    """Return the answer of the server at `url`. It is streamed, or if there are secrets, read and passed on whole.

    If the server breaks off within a streamed answer, the connection of the request is closed, so that the client does
    not take the part for the whole.

    Raises:
        web.HTTPBadGateway: the server does not answer, or not in a form in which secrets can be replaced.
    """
    without = ("Host",) if route.secrets is None else ("Host", "Accept-Encoding")
    only = None if route.only is None else JOURNAL_HEADERS
    reply: web.StreamResponse | None = None
    try:
        async with client.request(
            request.method,
            url,
            headers=_onward(request.headers, *without, only=only),
            skip_auto_headers=("Accept-Encoding",),
            data=request.content if request.can_read_body else None,
            allow_redirects=False,
        ) as answer:
            if route.secrets is not None:
                return await _redacted(answer, route.secrets)
            reply = web.StreamResponse(status=answer.status, headers=_onward(answer.headers))
            await reply.prepare(request)
            async for piece in answer.content.iter_any():
                await reply.write(piece)
            await reply.write_eof()
            return reply
    except (aiohttp.ClientError, TimeoutError, ConnectionError):
        if reply is None or not reply.prepared:
            raise web.HTTPBadGateway(text="the server behind this address does not answer") from None
        if request.transport is not None:
            request.transport.close()
        return reply


async def _exported(
    request: web.Request, client: aiohttp.ClientSession, url: URL, key: Mapping[str, str]
) -> web.Response:
    """Send what the driver exports to the collector; of its answer the status alone is passed on."""
    size = request.content_length
    if size is None or size > MOST_EXPORTED:
        raise web.HTTPRequestEntityTooLarge(MOST_EXPORTED, size or -1)
    headers = {name: request.headers[name] for name in EXPORT_HEADERS if name in request.headers}
    try:
        async with client.post(url, data=request.content, headers={**headers, **key}, allow_redirects=False) as answer:
            return web.Response(status=answer.status)
    except (aiohttp.ClientError, TimeoutError, ConnectionError):
        raise web.HTTPBadGateway(text="the collector does not answer") from None


async def _redacted(answer: aiohttp.ClientResponse, secrets: Secrets) -> web.Response:
    headers = _onward(answer.headers, "Content-Length")
    if answer.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise web.HTTPBadGateway(text="the server compressed its answer, which was not asked for")
    body = bytearray()
    async for piece in answer.content.iter_any():
        body += piece
        if len(body) > LARGEST_ANSWER:
            answer.close()
            raise web.HTTPBadGateway(text=f"the server answers with more than {LARGEST_ANSWER >> 20} MB")
    return web.Response(status=answer.status, headers=headers, body=secrets.redact_json(bytes(body)))


def _onward(headers: Mapping[str, str], *without: str, only: Collection[str] | None = None) -> "CIMultiDict[str]":
    kept: CIMultiDict[str] = CIMultiDict(
        (name, value) for name, value in headers.items() if only is None or name.lower() in only
    )
    for name in (*OF_ONE_HOP, *without):
        kept.popall(name, None)
    return kept
