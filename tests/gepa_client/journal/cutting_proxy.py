"""Forward requests to a server; on request, close the connection after one was executed and before its response."""

import asyncio

from tests.support.loops import TcpServer


class CuttingProxy(TcpServer):
    """`cut`: the next request with this word in it is done by the server, and its answer is lost."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._behind = port
        self.cut: bytes | None = None
        self.cuts = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self._behind)
        try:
            while True:
                request = await _message(reader)
                to_server.write(request)
                answer = await _message(from_server)
                if self.cut is not None and self.cut in request:
                    self.cut, self.cuts = None, self.cuts + 1
                    return
                writer.write(answer)
        except (asyncio.IncompleteReadError, OSError):
            pass  # one side is gone: so is this connection
        finally:
            to_server.close()
            writer.close()


async def _message(stream: asyncio.StreamReader) -> bytes:
    """One message of MongoDB's wire: its length, in four bytes, counts them too."""
    head = await stream.readexactly(4)
    return head + await stream.readexactly(int.from_bytes(head, "little") - 4)
