"""A reflection model out of reach, or whose provider refuses the key or the model, is found before anything is paid."""

import json
import re

import pytest
from aiohttp import web

from evolverpc_common.network_addresses import free_port, parse_networks
from evolverpc_common.settings.sources import SettingsError
from gepa_client.check.preflight import connection_fault, preflight_connection
from gepa_client.settings.run_config import RunConfig
from tests.gepa_client.scripted_server import Host

UNKNOWN = {"error": {"message": "The model 'gpt-99' does not exist", "code": "model_not_found"}}


class Provider:
    """Answers every request with `status` and `body`; `asked`: path and headers of each."""

    def __init__(self, host: Host) -> None:
        self.status, self.body = 200, b"{}"
        self.location: str | None = None
        self.asked: list[tuple[str, str | None]] = []
        self.url = host.serve(self.handle, "/{path:.*}").removesuffix("/{path:.*}")

    async def handle(self, request: web.Request) -> web.Response:
        self.asked.append((request.path, request.headers.get("x-api-key", request.headers.get("Authorization"))))
        headers = {} if self.location is None else {"Location": self.location}
        return web.Response(status=self.status, body=self.body, headers=headers)


@pytest.fixture
def provider(host: Host) -> Provider:
    return Provider(host)


@pytest.mark.parametrize(
    ("status", "body", "fault"),
    [
        (200, {"id": "gpt-99"}, None),
        (
            401,
            {"error": {"message": "Incorrect API key provided"}},
            r"the key .* is refused at .*/v1/models/gpt-99 \(status 401\); set another one$",
        ),
        (401, "no JSON object", r"the key of the model openai/gpt-99 is refused at .* \(status 401\)"),
        (404, UNKNOWN, r"there is no model openai/gpt-99 at .*/v1/models/gpt-99 \(status 404\)$"),
        (404, {"detail": "Not Found"}, None),
        (500, {"error": {"message": "gpt-99 is loading"}}, None),
    ],
)
def test_only_a_refusal_of_the_key_or_of_the_model_is_a_fault(
    provider: Provider, status: int, body: object, fault: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.status, provider.body = status, json.dumps(body).encode()
    url, base = f"{provider.url}/v1/", f"{provider.url}/base/v1"
    for name, text in (("OTHER_KEY", "k"), ("OPENAI_API_KEY", "k"), ("OPENAI_BASE_URL", ""), ("OPENAI_API_BASE", base)):
        monkeypatch.setenv(name, text)
    for given in ({"api_base": url, "api_key": "k"}, {"base_url": url, "api_key": "os.environ/OTHER_KEY"}, {}):
        found = connection_fault("openai/gpt-99", given)
        assert (found is None) if fault is None else re.search(fault, found or "")
    connection_fault("anthropic/c", {"api_base": provider.url, "api_key": "k"})
    assert provider.asked.pop() == ("/v1/models/c", "k")
    assert provider.asked == [(f"{place}/v1/models/gpt-99", "Bearer k") for place in ("", "", "/base")]


def test_a_model_out_of_reach_stops_the_start_unless_the_check_is_left_out() -> None:
    url = f"http://127.0.0.1:{free_port()}/v1"
    kwargs = {"api_base": url, "api_key": "k"}
    settings = RunConfig(url=["http://127.0.0.1:1"], reflection_lm="openai/gpt-5", reflection_lm_kwargs=kwargs)
    with pytest.raises(SettingsError) as refused:
        preflight_connection(settings)
    message = str(refused.value)
    assert f"the model openai/gpt-5 does not answer at {url}: Connection refused" in message
    assert "set `api_base` in `reflection_lm_kwargs` (nothing was run; set `check` to off" in message
    preflight_connection(settings.model_copy(update={"check": "off"}))


def test_a_redirect_is_not_followed_and_an_address_that_the_policy_refuses_is_not_asked(
    provider: Provider, host: Host
) -> None:
    kwargs = {"api_base": f"{provider.url}/v1", "api_key": "k"}
    internal = Provider(host)
    internal.status, internal.body = 401, json.dumps({"error": {"message": "inside"}}).encode()
    provider.status, provider.location = 302, f"{internal.url}/inside"
    assert connection_fault("openai/gpt-99", kwargs) is None
    assert connection_fault("openai/gpt-99", kwargs, parse_networks(["127.0.0.0/8"])) is None
    assert (len(provider.asked), internal.asked) == (2, [])
    for address in (provider.url, provider.url.replace("127.0.0.1", "localhost")):
        found = connection_fault("openai/gpt-99", {**kwargs, "api_base": address}, ())
        assert "not asked" in (found or "")
        assert "public" in (found or "")
    assert len(provider.asked) == 2
