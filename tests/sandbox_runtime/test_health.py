"""A server is ready once its health check succeeds, over any transport."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from sandbox_runtime import ServerEndpoint
from sandbox_runtime.runtime import wait_until_healthy


@asynccontextmanager
async def answering(listening: socket.socket, *statuses: int) -> AsyncIterator[list[bytes]]:
    """A server that answers with these, one after the other, 0 by hanging up; what it was asked."""
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        status = statuses[min(len(asked), len(statuses)) - 1]
        if status:
            where = b"Location: http://127.0.0.1:9/\r\n" if status == 302 else b""
            writer.write(b"HTTP/1.1 %d -\r\nConnection: close\r\nContent-Length: 0\r\n%s\r\n" % (status, where))
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, sock=listening)
    try:
        yield asked
    finally:
        server.close()
        await server.wait_closed()


def on_unix(path: Path) -> tuple[socket.socket, str]:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen()
    return listening, f"http+unix://{quote(str(path), safe='')}/rpc"


def on_tcp() -> tuple[socket.socket, str]:
    listening = socket.create_server(("127.0.0.1", 0))
    return listening, f"http://127.0.0.1:{listening.getsockname()[1]}/rpc"


async def test_the_health_check_is_repeated_until_it_succeeds() -> None:
    listening, url = on_tcp()
    async with answering(listening, 503, 0, 302, 200) as asked:
        await wait_until_healthy(ServerEndpoint(url, "token"), 10)
    assert len(asked) == 4
    assert asked[0].startswith(b"GET /health HTTP/1.1\r\n")
    assert b"token" not in b"".join(asked)


async def test_a_server_that_is_not_ready_in_time_is_an_error_with_its_last_fault(short: Path) -> None:
    listening, url = on_tcp()
    started = time.monotonic()
    async with answering(listening, 503):
        with pytest.raises(TimeoutError, match="503"):
            await wait_until_healthy(ServerEndpoint(url, "token"), 0.2)
    with pytest.raises(TimeoutError, match="ClientConnector"):
        await wait_until_healthy(ServerEndpoint(url, "token"), 0.2)
    silent, url = on_unix(short / "server")
    with silent, pytest.raises(TimeoutError, match="no answer"):
        await wait_until_healthy(ServerEndpoint(url, "token"), 0.2)
    assert time.monotonic() - started < 5
