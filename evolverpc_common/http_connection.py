"""A connection of aiohttp's server that counts among the open ones, so that an idle one makes room for a new one."""

import asyncio
from typing import Any

from aiohttp import web

from evolverpc_common.open_connections import OpenConnections


class CountedConnection(web.RequestHandler):
    """A connection that is among `connections` from its start to its end. `arguments`, `options`: those of aiohttp."""

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
