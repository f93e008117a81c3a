"""Join two byte streams, so that what one sends the other gets: connections, and WebSockets in place of them."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from aiohttp import WSMsgType, web
from aiohttp.client import ClientWebSocketResponse

PIECE_BYTES = 64 * 1024
END = "end"
"""The text that ends the bytes of one direction of a WebSocket."""


class ByteStream(Protocol):
    """One side of a connection."""

    async def receive(self) -> bytes:
        """Return the next bytes; empty at their end. Raises `OSError`."""
        ...

    async def send(self, data: bytes) -> None:
        """Send bytes; empty: the last were sent. Raises `OSError`."""
        ...

    async def close(self) -> None:
        """Close it, both directions."""
        ...


@dataclass(frozen=True)
class Connection:
    """A connection of a socket."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def receive(self) -> bytes:
        return await self.reader.read(PIECE_BYTES)

    async def send(self, data: bytes) -> None:
        if data:
            self.writer.write(data)
            await self.writer.drain()
        elif self.writer.can_write_eof():
            self.writer.write_eof()

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


@dataclass(frozen=True)
class WebSocketStream:
    """A WebSocket of binary messages, and `END`."""

    socket: web.WebSocketResponse | ClientWebSocketResponse[Any]

    async def receive(self) -> bytes:
        message = await self.socket.receive()
        data: bytes = message.data if message.type is WSMsgType.BINARY else b""
        return data

    async def send(self, data: bytes) -> None:
        await (self.socket.send_bytes(data) if data else self.socket.send_str(END))

    async def close(self) -> None:
        await self.socket.close()


async def splice(one: ByteStream, other: ByteStream) -> None:
    """Pass bytes both ways until both directions have ended, or one of the two is lost; then close both."""

    async def passed(source: ByteStream, target: ByteStream) -> None:
        while data := await source.receive():
            await target.send(data)
        await target.send(b"")

    both = [asyncio.create_task(passed(one, other)), asyncio.create_task(passed(other, one))]
    try:
        with contextlib.suppress(OSError):
            await asyncio.gather(*both)
    finally:
        for each in both:
            each.cancel()
        await asyncio.gather(*both, return_exceptions=True)
        await asyncio.gather(one.close(), other.close())


class Forwarder:
    """Listens, and joins each connection with what it is for; closing it ends all of them.

    `join`: gets the connection, and has closed it when it ends.
    """

    def __init__(self, join: Callable[[Connection], Coroutine[Any, Any, None]]) -> None:
        self._join = join
        self._joined: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def open(self, address: str | None = None, *, listening: socket.socket | None = None) -> int:
        """Listen at any port of an address, or on a socket that listens; return the port, 0 for another socket's."""
        where = {"sock": listening} if listening is not None else {"host": address, "port": 0}
        self._server = await asyncio.start_server(self._connected, **where)
        name = self._server.sockets[0].getsockname()
        return name[1] if isinstance(name, tuple) else 0

    async def close(self) -> None:
        """Accept nothing more, and end what was accepted."""
        if self._server is not None:
            self._server.close()
        for each in tuple(self._joined):
            each.cancel()
        await asyncio.gather(*self._joined, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        joined = asyncio.create_task(self._join(Connection(reader, writer)))
        self._joined.add(joined)
        joined.add_done_callback(self._joined.discard)
