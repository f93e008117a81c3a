import asyncio
from pathlib import Path
from urllib.parse import quote

import pytest

from gepa_client.conformance.cases import HttpOverrides
from gepa_client.conformance.raw_transport import RawRequest, RawTransport
from gepa_client.errors import Refused
from gepa_client.transport.address import rpc_url
from gepa_client.transport.rpc_client import RpcClient
from tests.gepa_client.scripted_server import ScriptedServer


@pytest.fixture
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("s") / "a socket"


def url_of(path: Path) -> str:
    return f"http+unix://{quote(str(path), safe='')}"


async def test_a_server_on_a_socket_is_called_as_any_other(host, path):
    server = ScriptedServer()
    assert host.serve_on_socket(server.handle, path) == f"{url_of(path)}/rpc"
    async with RpcClient(url_of(path), token=server.token) as client:
        assert (await client.discover()).program.name == "scripted"
        answer = await client.evaluate({"system": "s", "style": "t"}, [{"id": "a", "data": 1}], call_id="c")
    assert answer["results"][0]["score"] == 1.0
    async with RawTransport(url_of(path), server.token) as transport:
        assert (
            await transport.send(RawRequest(b"5", HttpOverrides(verb="GET", path="/nowhere")), timeout_s=10)
        ).status == 404


@pytest.mark.parametrize("given", ["http+unix://%2Frun%2fa%20b", "http+unix://%2frun%2Fa%20b/rpc/"])
def test_the_address_of_a_socket_is_written_in_one_way(given):
    assert rpc_url(given) == "http+unix://%2Frun%2Fa%20b/rpc"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http+unix:///run/server", "names no socket"),
        ("http+unix://run%2Fserver", "names no socket"),
        (f"http+unix://%2F{'a' * 110}", "longer than 107 bytes"),
        ("http+unix://%2Frun%2Fserver?a=1", "no query"),
    ],
)
def test_an_address_that_no_socket_can_have_is_refused(url, why):
    with pytest.raises(Refused, match=why):
        rpc_url(url)


async def test_more_calls_than_a_socket_has_places_for_are_all_answered(host, path):
    server = ScriptedServer()
    host.serve_on_socket(server.handle, path)
    async with RpcClient(url_of(path), token=server.token) as client:
        await asyncio.gather(*(client.discover() for _ in range(300)))
