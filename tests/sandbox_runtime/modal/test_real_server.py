"""The real server at Modal, asked as an optimizer asks it: through the connect proxy, with two tokens."""

from typing import Any

import aiohttp

from sandbox_runtime import Command, ServerEndpoint
from sandbox_runtime.runtime import Runtime
from tests.sandbox_runtime.modal.echo_server import published, spec
from tests.support.modal_cloud import Cloud

DISCOVER = {"jsonrpc": "2.0", "id": 1, "method": "discover"}


async def asked(endpoint: ServerEndpoint, token: str) -> tuple[int, dict[str, Any]]:
    headers = {"Authorization": f"Bearer {endpoint.proxy_token}", "X-Gepa-Token": token}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(f"{endpoint.url}/rpc", json=DISCOVER) as answer,
    ):
        return answer.status, await answer.json()


async def test_the_real_server_answers_a_client_with_both_tokens(cloud: Cloud, runtime: Runtime) -> None:
    server = published(cloud).server
    sandbox = await runtime.start(spec(cloud, main=Command((*server, "--conformance"))))
    endpoint = await sandbox.endpoint()
    status, reply = await asked(endpoint, endpoint.token)
    assert status == 200
    assert reply["result"]["program"]["name"] == "conformance"
    status, reply = await asked(endpoint, "another")
    assert status == 401
    assert "result" not in reply
