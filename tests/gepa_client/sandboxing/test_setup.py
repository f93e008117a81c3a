"""The source and settings that sandboxes are started from."""

import json
from pathlib import Path

import pytest

from gepa_client.run.output_folder import HostTotals, host_totals
from gepa_client.sandboxing import setup
from gepa_client.sandboxing.session_messages import CONNECTIONS_KEPT, ENVIRONMENT, HOSTS_KEPT, ConnectionLog
from gepa_client.settings.loading import load
from sandbox_runtime import GatewaySession, PreparedEnvironment, Recipe
from sandbox_runtime.gateway import HostConnection
from sandbox_runtime.gateway.gateway_session import SandboxGatewaySession
from tests.sandbox_runtime.source.repositories import commit


class FakeRuntime:
    """Keeps what builds would find in their environment."""

    name = "bubblewrap"

    def __init__(self) -> None:
        self.gateway_session: GatewaySession | None = None
        self.env: dict[str, str] = {}

    async def __aenter__(self) -> "FakeRuntime":
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def found(self) -> list[object]:
        return []

    async def prepare(self, recipe: Recipe, **_: object) -> PreparedEnvironment:
        if self.gateway_session is not None:
            self.env = dict(self.gateway_session.env("http://models", "http://tunnel"))
        return PreparedEnvironment(recipe=recipe, server=())


async def test_builds_reach_hosts_and_no_models_and_nothing_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = FakeRuntime()

    def opened(_: str, *, build_gateway_session: GatewaySession | None, app_name: str | None) -> FakeRuntime:
        runtime.gateway_session = build_gateway_session
        return runtime

    monkeypatch.setattr(setup, "open_runtime", opened)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    commit(tmp_path / "program", {"requirements.txt": "x\n"})
    settings = load(None, {"repo": str(tmp_path / "program"), "sandbox": "bubblewrap"}, must_end=False)
    await setup.publish(settings, print)
    assert "HTTPS_PROXY" in runtime.env
    assert not [name for name in runtime.env if not name.lower().endswith("_proxy")]
    assert isinstance(runtime.gateway_session, SandboxGatewaySession)
    assert runtime.gateway_session.closed
    own = '{"openai": {"base_url": "http://127.0.0.1:1/v1", "key_env": "OPENAI_API_KEY"}}'
    settings = load(None, {"repo": ".", "sandbox": "bubblewrap", "model_providers": own}, must_end=False)
    assert [each.name for each in setup.providers_of(settings)].count("openai") == 1


def test_a_flood_of_connections_is_counted_and_only_its_beginning_kept_one_by_one(tmp_path: Path) -> None:
    log = ConnectionLog()
    for number in range(CONNECTIONS_KEPT + 5):
        host = "api.example" if number >= HOSTS_KEPT else f"host-{number}.example"
        log.add(
            HostConnection(
                "sandbox 1", host, 443, sent=10, received=1000, seconds=0.5, reached=number != 0, method="CONNECT"
            )
        )
    for sandbox in ("sandbox 2", ENVIRONMENT):
        log.add(
            HostConnection(
                sandbox, "one-more.example", 443, sent=1, received=0, seconds=0.0, reached=False, method="GET"
            )
        )
    lines = [json.loads(line) for line in log.lines()]
    assert len([line for line in lines if "connection" in line]) == CONNECTIONS_KEPT
    assert len([line for line in lines if "host" in line]) == HOSTS_KEPT + 1
    assert sum(line["connections"] for line in lines if "host" in line) == CONNECTIONS_KEPT + 6
    (tmp_path / "connections.jsonl").write_text("\n".join([*log.lines()] * 2))  # of two processes
    assert host_totals(tmp_path)["host-0.example:443"] == HostTotals(2, 2, 20, 2000)
