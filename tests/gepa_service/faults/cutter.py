"""A TCP proxy whose connections are cut all at once."""

import asyncio
import contextlib

from tests.support.loops import TcpServer, cancel_others

PIECE = 1 << 16


class Cutter(TcpServer):
    """Stands before `port` on loopback, for a `with` block."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._upstream = port

    def cut(self) -> int:
        """Reset every connection, also in the middle of a message; return how many there were."""
        return self.run(cancel_others())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._carry(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # one side is gone, or the connection is cut
        finally:
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        beyond, there = await asyncio.open_connection("127.0.0.1", self._upstream)
        ways = [asyncio.create_task(_carried(reader, there)), asyncio.create_task(_carried(beyond, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            there.transport.abort()


async def _carried(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await source.read(PIECE):
            to.write(piece)
            await to.drain()
