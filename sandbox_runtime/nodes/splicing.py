"""Join connections, so that what one sends the other gets."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from sandbox_runtime.gateway.gateway_session import Listener

PIECE_BYTES = 64 * 1024

HALF_OPEN_S = 30.0
"""How long one direction may carry nothing once the other has ended."""

LINGER_S = 5.0
"""Within how many seconds what was sent last must have arrived as a connection is closed."""

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def close(connection: Connection) -> None:
    """Close a connection within `LINGER_S`; not waited for, as the other end may never read what is left."""
    writer = connection[1]
    writer.close()
    asyncio.get_running_loop().call_later(LINGER_S, writer.transport.abort)


async def splice(one: Connection, other: Connection) -> None:
    """Pass bytes both ways until both directions have ended, or one connection is lost; then close both.

    Once one direction has ended, the other ends too if it carries nothing for `HALF_OPEN_S`.
    """
    loop = asyncio.get_running_loop()

    async def passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(PIECE_BYTES):
            if limit.when() is not None:
                limit.reschedule(loop.time() + HALF_OPEN_S)
            writer.write(data)
            await writer.drain()
        writer.write_eof()
        limit.reschedule(loop.time() + HALF_OPEN_S)

    try:
        with contextlib.suppress(OSError):
            async with asyncio.timeout(None) as limit:
                both = [asyncio.create_task(passed(one[0], other[1])), asyncio.create_task(passed(other[0], one[1]))]
                try:
                    await asyncio.gather(*both)
                finally:
                    for each in both:
                        each.cancel()
                    await asyncio.gather(*both, return_exceptions=True)
    finally:
        close(one)
        close(other)


class Forwarder:
    """Accepts, from its construction, at most `most` connections at once, and joins each with what it is for.

    `listening`: a socket that listens; it owns it. `join`: gets a connection, which ends when it ends.
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
        joined = asyncio.create_task(self._join((reader, writer)))
        self._joined.add(joined)

        def over(_: asyncio.Task[None]) -> None:
            self._joined.discard(joined)
            close((reader, writer))
            ended()

        joined.add_done_callback(over)
