"""A gateway session in place of a gateway's own."""

import asyncio
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class Echoing:
    """Its gateway answers each connection with the name of the socket that it came by.

    `answers`: False if it holds each instead until the other side ends it. `accepted`: how many came.
    """

    models_url: str | None = None
    answers: bool = True
    accepted: int = 0
    servers: list[asyncio.Server] = field(default_factory=list)

    async def serve(self, models: socket.socket, tunnel: socket.socket) -> None:
        for name, listening in (("models", models), ("tunnel", tunnel)):
            listening.setblocking(False)
            self.servers.append(await asyncio.start_server(self._answering(name), sock=listening))

    def _answering(self, name: str):  # type: ignore[no-untyped-def]
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.accepted += 1
            if not self.answers:
                await reader.read()
            writer.write(name.encode())
            await writer.drain()
            writer.close()

        return answer

    def env(self, models_url: str, tunnel_url: str | None) -> Mapping[str, str]:
        return {"MODELS": models_url, "MODELS_KEY": "session-token", "HTTPS_PROXY": tunnel_url or ""}

    async def close(self) -> None:
        for server in self.servers:
            server.close()
