"""A gateway session that gives every connection the same answer."""

import asyncio
import socket
from collections.abc import Mapping


class Answering:
    """A gateway session that gives every request the same answer, on the sandbox's own sockets."""

    models_url = None
    tunnel_url = None

    def __init__(self) -> None:
        self._servers: list[asyncio.Server] = []

    async def serve(self, models: socket.socket, tunnel: socket.socket) -> None:
        for listening in (models, tunnel):
            self._servers.append(await asyncio.start_server(self._answer, sock=listening))

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\nConnection: close\r\n\r\nfrom outside")
        await writer.drain()
        writer.close()

    def env(self, models_url: str, tunnel_url: str) -> Mapping[str, str]:
        return {"OPENAI_BASE_URL": models_url, "TUNNEL": tunnel_url}

    async def close(self) -> None:
        for server in self._servers:
            server.close()
            await server.wait_closed()
