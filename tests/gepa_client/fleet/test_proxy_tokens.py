"""Endpoints behind a proxy that has tokens of its own, which expire."""

import pytest

from gepa_client.fleet import Address, Pin
from tests.gepa_client.fleet.conftest import begin, results
from tests.gepa_client.scripted_server import TOKEN
from tests.support.waiting import eventually


@pytest.fixture
def proxied(cluster, tmp_path, monkeypatch):
    """A server behind a proxy, and its address."""
    monkeypatch.delenv("GEPA_TOKEN")
    server = cluster.start()
    server.proxy_token = "the proxy's first"
    (tmp_path / "own").write_text(server.token, encoding="utf-8")
    (tmp_path / "proxy").write_text(server.proxy_token, encoding="utf-8")
    return server, Address(server.url, token_file=tmp_path / "own", proxy_token_file=tmp_path / "proxy")


@pytest.mark.parametrize("which", ["own", "proxy"])
async def test_an_only_endpoint_rests_until_its_file_has_the_new_token(proxied, opened, watch, tmp_path, which):
    server, address = proxied
    secrets: set[str] = set()
    async with opened(address, on_token=secrets.add) as fleet:
        assert secrets == {TOKEN, "the proxy's first"}
        [endpoint] = fleet.endpoints
        if which == "own":
            server.token = "renewed"
        else:
            server.proxy_token = "renewed"
        pin = Pin(endpoint.instance)
        calls = [begin(fleet, "a"), begin(fleet, "b", pin=pin, trace=True)]
        await eventually(lambda: watch.of("resting"))
        assert "refused the token" in watch.of("resting")[0].detail
        (tmp_path / which).write_text("renewed", encoding="utf-8")
        await results(*calls)
        assert watch.kinds("back") == ["back"]
        assert pin.instance == server.instance_id
        assert secrets == {TOKEN, "the proxy's first", "renewed"}  # of which the run writes none
