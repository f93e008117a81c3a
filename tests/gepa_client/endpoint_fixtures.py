"""Fixtures of clients in the test's own process: a scripted server and its token."""

import pytest

from tests.gepa_client.scripted_server import TOKEN, Host, ScriptedServer


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEPA_TOKEN", TOKEN)


@pytest.fixture
def server(host: Host) -> ScriptedServer:
    made = ScriptedServer()
    made.url = host.serve(made.handle)
    return made
