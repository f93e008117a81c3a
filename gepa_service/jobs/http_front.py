"""The one port by which sandboxes at Modal reach a job: the gateways of models, and for the driver the servers.

Paths begin with the name of a route. Each route leads to one server, which checks the tokens of its requests itself.
"""

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
from aiohttp import web

from evolverpc_common.redaction import Secrets
from gepa_service.jobs.event_thread import EventThread
from gepa_service.jobs.forwarding import forwarded, forwarding_session
from gepa_service.jobs.front_port import free_port
from gepa_service.jobs.work_order import Front
from sandbox_runtime import SandboxError

PROGRAMS = "programs"
"""The route to the gateway of the programs."""


class HttpFront:
    """Forwards requests by the first part of their path. `url`: how it is reached from elsewhere."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._targets: dict[str, tuple[str, Secrets | None]] = {}

    def route(self, name: str, target: str, secrets: Secrets | None = None) -> str:
        """Let a path of this name lead to the server `target`; return its address from elsewhere.

        `secrets`: are replaced in its answers.
        """
        self._targets[name] = target.rstrip("/"), secrets
        return f"{self.url}/{name}"

    @contextlib.asynccontextmanager
    async def listening(self, port: int) -> AsyncIterator["HttpFront"]:
        """Answer on a port of every address of this machine, for the block. Raises `OSError`: it is taken."""
        async with forwarding_session(aiohttp.TCPConnector(limit=0)) as client:

            async def forward(request: web.Request) -> web.StreamResponse:
                return await self._forwarded(request, client)

            application = web.Application(client_max_size=0)
            application.router.add_route("*", "/{path:.*}", forward)
            runner = web.AppRunner(application, access_log=None, handler_cancellation=True, auto_decompress=False)
            await runner.setup()
            try:
                await web.TCPSite(runner, "0.0.0.0", port).start()  # noqa: S104  Modal's forwarder comes from outside
                yield self
            finally:
                await runner.cleanup()

    async def _forwarded(self, request: web.Request, client: aiohttp.ClientSession) -> web.StreamResponse:
        name, _, rest = request.raw_path.removeprefix("/").partition("/")
        target = self._targets.get(name)
        if target is None:
            raise web.HTTPNotFound(text="the path begins with the name of no route")
        to, secrets = target
        return await forwarded(request, client, f"{to}/{rest}", secrets)


@contextlib.contextmanager
def fronted(front: Front | None) -> Iterator[tuple[dict[str, Any], HttpFront | None]]:
    """Open the front of a job for the block; yield the settings of a gateway that is reached through it, and the front.

    Raises:
        SandboxError: its port was taken since it was forwarded; another attempt gets another one.
    """
    if front is None:
        yield {}, None
        return
    opened = HttpFront(front.url)
    port = free_port()
    gateway = opened.route(PROGRAMS, f"http://127.0.0.1:{port}")
    with EventThread() as thread, contextlib.ExitStack() as block:
        try:
            block.enter_context(thread.entered(opened.listening(front.port)))
        except OSError as error:
            raise SandboxError(f"port {front.port}, by which sandboxes reach this job, is taken: {error}") from error
        yield {"gateway": f"{port}={gateway}"}, opened
