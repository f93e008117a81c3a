"""A gateway that may connect to some networks only judges what the names of providers and hosts lead to."""

import aiohttp
import pytest

from evolverpc_common.network_addresses import parse_networks
from sandbox_runtime.gateway import SecretHeader, openai
from tests.sandbox_runtime.gateway.conftest import Opens, Recorded, sandbox
from tests.sandbox_runtime.gateway.stub_provider import KEY, StubProvider


@pytest.mark.parametrize(("networks", "status"), [((), 502), (("127.0.0.0/8", "::1/128"), 200), (None, 200)])
async def test_a_name_of_a_provider_that_leads_to_a_network_that_is_not_allowed_is_not_reached(
    opened: Opens, provider: StubProvider, http: aiohttp.ClientSession, networks: tuple[str, ...] | None, status: int
) -> None:
    named = openai(KEY, f"{provider.url.replace('127.0.0.1', 'localhost')}/v1")
    allowed = None if networks is None else parse_networks(networks)
    async with opened(providers=(named,), allowed_networks=allowed) as gateway:
        one = await sandbox(gateway)
        async with one.chat(http) as response:
            assert response.status == status, await response.text()
    assert len(provider.seen) == (status == 200)


async def test_a_name_of_a_host_with_a_secret_header_is_judged_too(
    opened: Opens, provider: StubProvider, http: aiohttp.ClientSession, recorded: Recorded
) -> None:
    port = provider.url.rpartition(":")[2]
    header = SecretHeader(f"localhost:{port}", "X-Key", "the-secret")
    async with opened(secret_headers=(header,), allowed_networks=()) as gateway:
        one = await sandbox(gateway)
        address = one.session.env(one.models, one.tunnel)[header.variable]
        async with http.get(f"{address}/v1/things") as response:
            assert response.status == 502
    assert not recorded.connections[0].reached
    assert provider.seen == []
