"""Endpoints whose token file is away for a while."""

import pytest

from gepa_client.errors import ConnectionLost, Refused
from gepa_client.fleet import Address
from tests.gepa_client.fleet.conftest import begin, results, until


async def test_a_start_without_a_readable_token_is_an_error(cluster, opened, tmp_path):
    servers = [cluster.start(), cluster.start()]
    gone = [Address(server.url, token_file=tmp_path / "gone") for server in servers]
    with pytest.raises(Refused, match="gone: no such file"):
        async with opened(gone[0]):
            pass
    with pytest.raises(ConnectionLost, match=r"none of the 2 endpoints answers:(\n.*gone: no such file){2}"):
        async with opened(*gone):
            pass


async def test_a_token_file_that_vanishes_and_comes_back_with_another_token_ends_nothing(
    cluster, opened, watch, tmp_path
):
    server = cluster.start()
    path = tmp_path / "token"
    path.write_text(server.token, encoding="utf-8")
    async with opened(Address(server.url, token_file=path)) as fleet:
        await results(begin(fleet, "a"))
        path.unlink()
        server.token = "after the restart"
        server.forget("another")
        waiting = begin(fleet, "b")
        await until(lambda: watch.of("resting"))
        assert "no such file" in watch.of("resting")[0].detail
        path.write_text(server.token, encoding="utf-8")
        await results(waiting)
        assert fleet.endpoints[0].instance == "another"
