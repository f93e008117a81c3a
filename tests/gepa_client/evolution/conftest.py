"""Servers whose program is made of commits, in a thread of the test's own process."""

from collections.abc import Callable

import pytest

from tests.gepa_client.code_server import CodeServer
from tests.gepa_client.endpoint_fixtures import token
from tests.gepa_client.scripted_server import Host

__all__ = ["token"]


@pytest.fixture
def code_server(host: Host) -> Callable[..., CodeServer]:
    """Starts one; each has a repository of its own with the seed's commit alone."""

    def start(instance_id: str = "first") -> CodeServer:
        server = CodeServer()
        server.instance_id = instance_id
        server.url = host.serve(server.handle)
        return server

    return start
