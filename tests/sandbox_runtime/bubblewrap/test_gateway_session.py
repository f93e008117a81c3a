import asyncio
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from sandbox_runtime import Allow
from sandbox_runtime.runtime import Runtime
from tests.sandbox_runtime.bubblewrap.containers import python, shell, started


@dataclass
class Echoing:
    """A gateway session whose gateway answers each connection with the name of the socket that it came by."""

    models_url: str | None = None
    servers: list[asyncio.Server] = field(default_factory=list)

    async def serve(self, models: socket.socket, tunnel: socket.socket) -> None:
        for name, listening in (("models", models), ("tunnel", tunnel)):
            listening.setblocking(False)
            self.servers.append(await asyncio.start_server(self._answering(name), sock=listening))

    def _answering(self, name: str):  # type: ignore[no-untyped-def]
        async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(name.encode())
            await writer.drain()
            writer.close()

        return answer

    def env(self, models_url: str, tunnel_url: str | None) -> Mapping[str, str]:
        return {"MODELS": models_url, "HTTPS_PROXY": tunnel_url or ""}

    async def close(self) -> None:
        for server in self.servers:
            server.close()


async def test_the_gateway_session_answers_on_loopback_inside_and_nowhere_else(runtime: Runtime) -> None:
    gateway_session = Echoing()
    setup = (shell("echo $MODELS $HTTPS_PROXY"),)
    sandbox = await started(
        runtime, gateway_session=gateway_session, egress=Allow(domains=("example.com",)), setup=setup
    )
    assert "http://127.0.0.1:8181 http://127.0.0.1:8182" in await sandbox.logs()
    code = """
import socket
print([socket.create_connection(("127.0.0.1", port)).makefile().read() for port in (8181, 8182)])
"""
    assert (await sandbox.exec(python(code))).stdout == b"['models', 'tunnel']\n"
    for port in (8181, 8182):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
    other = await started(runtime)
    assert (await other.exec(python(code))).status == 1
    await sandbox.close()
    await gateway_session.close()
