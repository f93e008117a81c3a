"""Relays from a container's own loopback to the servers of a job's sandboxes.

The driver reads a copy of the sandboxes' endpoints file that has the relays' addresses.
"""

import asyncio
import ssl
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit, urlunsplit

from gepa_client.transport.address import socket_of
from gepa_service.jobs.fleet_mirror import FleetMirror
from sandbox_runtime.backends.bubblewrap.container import Container

FIRST_PORT = 20_000
PIECE = 1 << 16


class Relays:
    """Use it in an `async with` block. `shared`: the folder that the driver reads. `original`, by relayed address."""

    def __init__(self, container: Container, shared: Path, fleet: Path | None, token: Path) -> None:
        self._container = container
        self._mirror = FleetMirror(shared, fleet, token, self.add)
        self._servers: list[asyncio.Server] = []
        self._by_target: dict[str, str] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self.original: dict[str, str] = {}
        self.fleet, self.token = self._mirror.fleet, self._mirror.token

    async def __aenter__(self) -> Self:
        await self._mirror.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._mirror.__aexit__()
        for server in self._servers:
            server.close()
        for connection in tuple(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def add(self, target: str) -> str:
        """Return the address inside that leads to this one outside."""
        if target not in self._by_target:
            port = FIRST_PORT + len(self._by_target)
            [listening] = await self._container.listen(port)

            async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                task = asyncio.current_task()
                assert task is not None  # noqa: S101  within a coroutine there is one
                self._connections.add(task)
                try:
                    await _relayed(target, reader, writer)
                except asyncio.CancelledError:
                    return  # the relays close
                finally:
                    self._connections.discard(task)

            self._servers.append(await asyncio.start_server(relay, sock=listening))
            parts = urlsplit(target)
            path = "" if parts.path == "/" else parts.path
            self._by_target[target] = urlunsplit(("http", f"127.0.0.1:{port}", path, "", ""))
            self.original[self._by_target[target]] = target
        return self._by_target[target]


async def _relayed(target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry one connection to its end."""
    try:
        try:
            beyond, there = await _connected(target)
        except OSError:
            return
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_carried(reader, there))
                group.create_task(_carried(beyond, writer))
        except* OSError:
            pass  # one side is gone, and so is the relayed connection
        finally:
            there.transport.abort()
    finally:
        writer.transport.abort()


async def _connected(target: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    path = socket_of(target)
    if path is not None:
        return await asyncio.open_unix_connection(path)
    parts = urlsplit(target)
    secure = ssl.create_default_context() if parts.scheme == "https" else None
    return await asyncio.open_connection(parts.hostname, parts.port or (443 if secure else 80), ssl=secure)


async def _carried(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
    while piece := await source.read(PIECE):
        to.write(piece)
        await to.drain()
    if to.can_write_eof():
        to.write_eof()
