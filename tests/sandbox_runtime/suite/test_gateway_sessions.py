"""Who reaches a gateway session of a sandbox."""

import socket

import pytest

from sandbox_runtime import Allow, Closed
from tests.sandbox_runtime.backend import BackendUnderTest, local
from tests.sandbox_runtime.gateway_session import Echoing
from tests.sandbox_runtime.suite.acting import environment_of, up

ASKS = """
import os, socket
for name in ("MODELS", "HTTPS_PROXY"):
    port = int(os.environ[name].rpartition(":")[2])
    print(socket.create_connection(("127.0.0.1", port)).makefile().read())
"""


@local
async def test_a_gateway_session_answers_on_loopback_inside_and_nowhere_else(backend: BackendUnderTest) -> None:
    session, has_network = Echoing(), isinstance(backend.egress, Closed)
    egress = Allow(domains=("example.com",)) if has_network else backend.egress
    async with up(backend, gateway_session=session, egress=egress, env={"MODELS_KEY": "own"}) as sandbox:
        assert (await sandbox.exec(backend.python(ASKS))).stdout == b"models\ntunnel\n"
        shown = await environment_of(backend, sandbox)
        assert shown["MODELS_KEY"] == "own"
        if has_network:
            addresses = {name: shown[name] for name in ("MODELS", "HTTPS_PROXY")}
            for address in addresses.values():
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])))
            async with up(backend, env=addresses) as other:
                assert b"models" not in (await other.exec(backend.python(ASKS))).stdout
    await session.close()
