"""The one port by which a job's driver, and its sandboxes at Modal, reach what they may: servers, journal and models.

Paths begin with the name of a route. Each route leads to one server, which checks the tokens of its requests itself. A
program may repeat a secret that it was given, so routes to programs replace secrets in answers: the driver never sees
one, and what it records, and what a replay gives it, is what it saw.
"""

import contextlib
import re
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web
from anyio.from_thread import start_blocking_portal

from evolverpc_common.redaction import Secrets
from gepa_client.transport.address import http_url
from gepa_client.transport.http_transport import connector
from gepa_service.jobs.forwarding import forwarded, forwarding_session
from gepa_service.jobs.front_port import free_port
from gepa_service.jobs.work_order import Front
from sandbox_runtime import SandboxError

PROGRAMS = "programs"
"""The route to the gateway of the programs."""

JOURNAL = "journal"
"""The route to the journal of the job."""

JOURNAL_HEADERS = frozenset({"authorization", "content-type", "content-length"})
JOURNAL_S = 120.0
"""Seconds of one request of the journal."""


@dataclass(frozen=True)
class _Route:
    target: str
    secrets: Secrets | None = None
    journal: re.Pattern[str] | None = None


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
        self._routes[JOURNAL] = _Route(api, journal=re.compile(rf"job/{re.escape(job_id)}/journal/[a-z_]+"))
        return f"{self.url}/{JOURNAL}"

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
        journal = route.journal
        if journal is not None and (request.method != "POST" or journal.fullmatch(rest) is None):
            raise web.HTTPForbidden(text="this request is not forwarded")
        if name not in self._clients:
            self._clients[name] = forwarding_session(connector(route.target), None if journal is None else JOURNAL_S)
        to = f"{http_url(route.target).rstrip('/')}/{rest}"
        names = None if journal is None else JOURNAL_HEADERS
        return await forwarded(request, self._clients[name], to, route.secrets, names)


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
