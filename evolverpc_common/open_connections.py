"""The open connections of a server: beyond half of its descriptors, a new one replaces the longest idle one."""

import asyncio
import resource
from collections import OrderedDict
from typing import Any, Protocol

from aiohttp import web


class Connection(Protocol):
    """A connection that can be closed to make room."""

    @property
    def idle(self) -> bool:
        """Whether none of its requests is being answered."""
        ...

    def force_close(self) -> None:
        """Close it at once."""
        ...


class OpenConnections:
    """The open connections, by their last activity."""

    def __init__(self) -> None:
        self._limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
        self._open: OrderedDict[Connection, None] = OrderedDict()

    def opened(self, connection: Connection) -> None:
        """Add a new connection."""
        if len(self._open) >= self._limit:
            longest = next((each for each in self._open if each.idle), None)
            if longest is not None:
                self.closed(longest)
                longest.force_close()
        self._open[connection] = None

    def used(self, connection: Connection) -> None:
        """Record its activity."""
        if connection in self._open:
            self._open.move_to_end(connection)

    def closed(self, connection: Connection) -> None:
        """Remove it; idempotent."""
        self._open.pop(connection, None)


class CountedConnection(web.RequestHandler):
    """A connection of aiohttp's server, among `connections` from its start to its end. All else: as aiohttp's."""

    __slots__ = ("_connections",)

    def __init__(self, connections: OpenConnections, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._connections = connections

    @property
    def idle(self) -> bool:
        """Whether none of its requests is being answered."""
        return self._current_request is None and not self._messages

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Add it to the open ones."""
        super().connection_made(transport)
        self._connections.opened(self)

    def data_received(self, data: bytes) -> None:
        """Note its activity."""
        self._connections.used(self)
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Remove it from the open ones."""
        self._connections.closed(self)
        super().connection_lost(exc)


def raise_descriptor_limit(wanted: int) -> None:
    """Raise this process's limit to `wanted` descriptors, or as far as the system allows; children inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
