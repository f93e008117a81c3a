"""Relays from addresses that a driver reaches to the servers of its job's sandboxes, which replace secrets in answers.

A program may repeat a secret that it was given. So the driver never sees one: what it records, and what a replay gives
it, is what it saw. It reads a copy of the sandboxes' endpoints file that has the relays' addresses.
"""

import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

from aiohttp import web

from evolverpc_common.redaction import Secrets
from gepa_client.transport.address import http_url
from gepa_client.transport.http_transport import connector
from gepa_service.jobs.fleet_mirror import FleetMirror
from gepa_service.jobs.forwarding import forwarded, forwarding_session

FIRST_PORT = 20_000

Listen = Callable[[int], Awaitable[socket.socket]]
"""Returns a socket that listens on this port of the driver's loopback."""


async def listen_here(_port: int) -> socket.socket:
    """Return a socket that listens on any port of this machine's loopback."""
    return socket.create_server(("127.0.0.1", 0))


class Relays:
    """Use it in an `async with` block. `shared`: the folder that the driver reads. `original`, by relayed address."""

    def __init__(self, listen: Listen, shared: Path, fleet: Path | None, token: Path, secrets: Secrets) -> None:
        self._listen = listen
        self._secrets = secrets
        self._mirror = FleetMirror(shared, fleet, token, self.add)
        self._open = AsyncExitStack()
        self._by_target: dict[str, str] = {}
        self.original: dict[str, str] = {}
        self.fleet, self.token = self._mirror.fleet, self._mirror.token

    async def __aenter__(self) -> Self:
        try:
            await self._mirror.__aenter__()
        except BaseException:
            await self._open.aclose()
            raise
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._mirror.__aexit__(*exception)
        await self._open.aclose()

    async def add(self, target: str) -> str:
        """Return the address for the driver that leads to this one."""
        if target not in self._by_target:
            client = await self._open.enter_async_context(forwarding_session(connector(target)))
            base = http_url(target).rstrip("/")

            async def forward(request: web.Request) -> web.StreamResponse:
                return await forwarded(request, client, base + request.raw_path, self._secrets)

            application = web.Application(client_max_size=0)
            application.router.add_route("*", "/{path:.*}", forward)
            runner = web.AppRunner(application, access_log=None, handler_cancellation=True, auto_decompress=False)
            await runner.setup()
            self._open.push_async_callback(runner.cleanup)
            listening = await self._listen(FIRST_PORT + len(self._by_target))
            await web.SockSite(runner, listening).start()
            address = f"http://127.0.0.1:{listening.getsockname()[1]}"
            self._by_target[target], self.original[address] = address, target
        return self._by_target[target]
