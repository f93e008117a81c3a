"""Accept a bounded number of connections from one listening socket; further ones wait in its backlog."""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable

Connect = Callable[[Callable[[], None]], asyncio.BaseProtocol]
"""Makes the protocol of one connection, which calls its argument when the connection is lost."""

FULL_S = 0.5
"""Seconds between two attempts if this process can open no more files."""

_FULL = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_GONE = frozenset({errno.ECONNABORTED, errno.EPROTO, errno.EPERM, errno.EINTR})

_log = logging.getLogger(__name__)


class Listener:
    """Accepts from its construction, in a running loop, until it is closed. It owns the socket."""

    def __init__(self, listening: socket.socket, most: int, connect: Connect) -> None:
        listening.setblocking(False)
        self._socket = listening
        self._room = asyncio.Semaphore(most)
        self._connect = connect
        self._transports: set[asyncio.WriteTransport] = set()
        self._task = asyncio.create_task(self._accept(), name="gateway listener")

    @property
    def port(self) -> int:
        """The port of a TCP socket."""
        return int(self._socket.getsockname()[1])

    def stop(self) -> None:
        """Accept no more and abort all connections at once, without a further response."""
        self._task.cancel()
        for transport in tuple(self._transports):
            transport.abort()

    async def close(self) -> None:
        """Stop, and close the socket."""
        self.stop()
        await asyncio.wait([self._task])
        self._socket.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._room.acquire()
            try:
                connection, _ = await loop.sock_accept(self._socket)
            except OSError as error:
                self._room.release()
                if error.errno in _FULL:
                    _log.warning("the gateway can open no more files: %s", error.strerror)
                    await asyncio.sleep(FULL_S)
                elif error.errno not in _GONE:
                    _log.exception("the gateway accepts no more on a socket")
                    return
            else:
                await self._take(connection)

    async def _take(self, connection: socket.socket) -> None:
        mine: list[asyncio.WriteTransport] = []

        def ended() -> None:
            self._room.release()
            self._transports.difference_update(mine)

        loop = asyncio.get_running_loop()
        try:
            transport, _ = await loop.connect_accepted_socket(lambda: self._connect(ended), connection)
        except OSError:  # it is gone already
            connection.close()
            self._room.release()
            return
        assert isinstance(transport, asyncio.WriteTransport)  # noqa: S101  a stream's is
        mine.append(transport)
        if not transport.is_closing():
            self._transports.add(transport)
