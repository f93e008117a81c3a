"""Endpoints whose token file is away for a while."""

import pytest

from gepa_client.errors import ConnectionLost, Refused
from gepa_client.fleet import Address


async def test_a_start_without_a_readable_token_is_an_error(cluster, opened, tmp_path):
    servers = [cluster.start(), cluster.start()]
    gone = [Address(server.url, token_file=tmp_path / "gone") for server in servers]
    with pytest.raises(Refused, match="gone: no such file"):
        async with opened(gone[0]):
            pass
    with pytest.raises(ConnectionLost, match=r"none of the 2 endpoints answers:(\n.*gone: no such file){2}"):
        async with opened(*gone):
            pass
