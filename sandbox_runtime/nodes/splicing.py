"""Join two byte streams, so that what one sends the other gets: connections, and WebSockets in place of them."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiohttp import WSMsgType, web
from aiohttp.client import ClientWebSocketResponse

from sandbox_runtime.gateway.gateway_session import Listener

PIECE_BYTES = 64 * 1024

HALF_OPEN_S = 30.0
"""How long one direction may carry nothing once the other has ended."""

LINGER_S = 5.0
"""Within how many seconds what was sent last must have arrived as a stream is closed."""

END = "end"
"""The text that ends the bytes of one direction of a WebSocket."""


@dataclass(frozen=True)
class Connection:
    """A connection of a socket.

    `receive` returns the next bytes, empty at their end, and `send` of no bytes ends those that it sends: both raise
    `OSError`. `close` closes both directions, within about `LINGER_S`.
    """

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
        self.writer.close()  # not waited for: the other end may never read what is left
        asyncio.get_running_loop().call_later(LINGER_S, self.writer.transport.abort)


@dataclass(frozen=True)
class WebSocketStream:
    """A WebSocket of binary messages, and `END`, with the methods of `Connection`."""

    socket: web.WebSocketResponse | ClientWebSocketResponse[Any]

    async def receive(self) -> bytes:
        message = await self.socket.receive()
        data: bytes = message.data if message.type is WSMsgType.BINARY else b""
        return data

    async def send(self, data: bytes) -> None:
        await (self.socket.send_bytes(data) if data else self.socket.send_str(END))

    async def close(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                await self.socket.close()


async def splice(one: Connection | WebSocketStream, other: Connection | WebSocketStream) -> None:
    """Pass bytes both ways until both directions have ended, or one stream is lost; then close both.

    Once one direction has ended, the other ends too if it carries nothing for `HALF_OPEN_S`.
    """

    async def passed(source: Connection | WebSocketStream, target: Connection | WebSocketStream) -> None:
        while data := await source.receive():
            if limit.when() is not None:
                limit.reschedule(loop.time() + HALF_OPEN_S)
            await target.send(data)
        await target.send(b"")
        limit.reschedule(loop.time() + HALF_OPEN_S)

    loop = asyncio.get_running_loop()
    try:
        with contextlib.suppress(OSError):
            async with asyncio.timeout(None) as limit:
                both = [asyncio.create_task(passed(one, other)), asyncio.create_task(passed(other, one))]
                try:
                    await asyncio.gather(*both)
                finally:
                    for each in both:
                        each.cancel()
                    await asyncio.gather(*both, return_exceptions=True)
    finally:
        await asyncio.gather(one.close(), other.close())


class Forwarder:
    """Accepts, from its construction, at most `most` connections at once, and joins each with what it is for.

    `listening`: a socket that listens; it owns it. `join`: gets a connection, and has closed it when it ends.
    """

    def __init__(
        self, listening: socket.socket, most: int, join: Callable[[Connection], Coroutine[Any, Any, None]]
    ) -> None:
        self._join = join
        self._joined: set[asyncio.Task[None]] = set()
        self._listener = Listener(listening, most, self._accepted)

    async def close(self) -> None:
        """Accept nothing more, and end what was accepted. Safe to call twice."""
        await self._listener.close()
        for each in self._joined:
            each.cancel()
        await asyncio.gather(*self._joined, return_exceptions=True)

    def _accepted(self, ended: Callable[[], None]) -> asyncio.BaseProtocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(), partial(self._begin, ended))

    def _begin(self, ended: Callable[[], None], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        joined = asyncio.create_task(self._join(Connection(reader, writer)))
        self._joined.add(joined)
        joined.add_done_callback(self._joined.discard)
        joined.add_done_callback(lambda _: ended())
