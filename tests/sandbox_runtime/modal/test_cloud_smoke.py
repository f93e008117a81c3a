"""A smoke test against Modal itself; it runs if a token is set."""

import os
import time

import aiohttp
import pytest

from sandbox_runtime import Closed, Command, EnvironmentMissing, Recipe, ResourceLimits, SandboxSpec
from sandbox_runtime.backends.modal.backend import ModalBackend

pytestmark = [
    pytest.mark.skipif(
        not (os.environ.get("MODAL_TOKEN_ID") and os.environ.get("MODAL_TOKEN_SECRET")),
        reason="needs Modal itself: set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET",
    ),
    pytest.mark.timeout(1200),
]

CONNECTS = "import socket; socket.create_connection(('1.1.1.1', 443), 5); print('connected')"


async def test_a_sandbox_serves_reaches_nothing_and_is_gone() -> None:
    async with ModalBackend("evolverpc-smoke") as runtime:
        try:
            prepared = await runtime.prepare(Recipe(), on_progress=print)
        except EnvironmentMissing:
            prepared = await runtime.prepare(Recipe(), on_progress=print, rebuild=True)
        main = Command((*prepared.server, "--conformance"))
        began = time.monotonic()
        sandbox = await runtime.start(
            SandboxSpec(
                main=main,
                prepared=prepared,
                egress=Closed(),
                limits=ResourceLimits(lifetime_s=600),
                labels={"smoke": "1"},
            )
        )
        print(f"ready after {time.monotonic() - began:.1f} s")
        endpoint = await sandbox.endpoint()
        headers = {"Authorization": f"Bearer {endpoint.proxy_token}", "X-Gepa-Token": endpoint.token}
        asked = {"jsonrpc": "2.0", "id": 1, "method": "discover"}
        async with aiohttp.ClientSession(headers=headers) as session:
            async with session.post(f"{endpoint.url}/rpc", json=asked) as answer:
                assert answer.status == 200
                assert "result" in await answer.json()
            async with session.get(f"{endpoint.url}/health", headers={"Authorization": "Bearer wrong"}) as answer:
                assert answer.status in (401, 403)
        out = await sandbox.exec(Command((prepared.server[0], "-I", "-c", CONNECTS), timeout_s=30))
        assert out.status != 0, "a closed sandbox reached the internet"
        late = await sandbox.exec(Command(("sh", "-c", "setsid sleep 60 & sleep 60"), timeout_s=1))
        assert late.timed_out
        assert [of.id for of in await runtime.found({"smoke": "1"})] == [sandbox.id]
        await sandbox.close()
        assert (await sandbox.wait()).kind == "terminated"
