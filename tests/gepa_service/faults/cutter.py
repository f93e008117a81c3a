"""A TCP proxy whose connections are cut all at once."""

import asyncio
import contextlib
import threading
from typing import Self

from tests.support.loops import cancel_others

PIECE = 1 << 16
WAIT_S = 10.0


class Cutter:
    """Stands before `port` on loopback, for a `with` block."""

    def __init__(self, port: int) -> None:
        self._upstream = port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cutter", daemon=True)
        self._server: asyncio.Server | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        starting = asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result(WAIT_S)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        self._loop.call_soon_threadsafe(self._server.close)
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> int:
        """Reset every connection, also in the middle of a message; return how many there were."""
        return asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result(WAIT_S)

    async def _cut(self) -> int:
        return await cancel_others()

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
