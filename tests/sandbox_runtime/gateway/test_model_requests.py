"""Calls of models through the gateway: the key is the provider's alone, and the answer is the provider's own."""

import asyncio
import logging
import socket

import aiohttp
import pytest
from aiohttp import web

from sandbox_runtime.api.spec import Open
from sandbox_runtime.gateway import configured, openai
from tests.sandbox_runtime.gateway.conftest import ASKED, Opens, Recorded, Sandbox, sandbox
from tests.sandbox_runtime.gateway.stub_provider import KEY, StubProvider, chunk, events, replying


async def test_only_the_provider_sees_the_key(
    opened: Opens,
    provider: StubProvider,
    http: aiohttp.ClientSession,
    recorded: Recorded,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    provider.answer = replying(200, f'{{"your key": "{KEY}"}}'.encode(), {"X-Request-Id": f"of {KEY}", "X-Key": KEY})
    async with opened() as gateway:
        one = await sandbox(gateway)
        async with one.chat(http) as response:
            content, headers = await response.text(), str(response.headers)
        async with one.post("/openai/v1/nothing", http) as response:
            content += await response.text()
        everything = repr((gateway, vars(gateway), one.session, recorded))
    assert provider.seen[0].headers["Authorization"] == f"Bearer {KEY}"
    assert content.startswith('{"your key": "[redacted]"}') and "of [redacted]" in headers
    for shown in (content, headers, everything, caplog.text):
        assert KEY not in shown


async def test_the_provider_sees_the_gateways_headers_and_not_the_sandboxs(
    opened: Opens, provider: StubProvider, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # it would see what goes by http
    async with opened() as gateway:
        one = await sandbox(gateway)
        mine = {
            "x-api-key": one.token,
            "Authorization": "Bearer stolen",
            "Host": "evil.example",
            "Forwarded": "for=evil",
            "X-Forwarded-Host": "evil",
            "OpenAI-Organization": "evil",
            "Cookie": "evil=1",
            "anthropic-version": "2023-06-01",
            "anthropic-beta": "context-1m",
        }
        async with one.post("/anthropic/v1/messages?beta=true", http, headers=mine) as response:
            assert response.status == 200
    seen = provider.seen[0]
    assert (seen.path, seen.headers["x-api-key"], seen.body) == ("/v1/messages?beta=true", KEY, ASKED)
    assert (seen.headers["anthropic-version"], seen.headers["anthropic-beta"]) == ("2023-06-01", "context-1m")
    assert "evil" not in str(seen) and "Authorization" not in seen.headers and one.token not in str(seen)


async def test_events_arrive_one_by_one(
    opened: Opens, provider: StubProvider, http: aiohttp.ClientSession, recorded: Recorded
) -> None:
    between = asyncio.Semaphore(0)
    usage = {"prompt_tokens": 7, "completion_tokens": 5}
    parts = [chunk("a"), chunk("b"), chunk(None, usage) + b"data: [DONE]\n\n"]
    provider.answer = events(parts, between)
    async with opened() as gateway:
        one = await sandbox(gateway)
        async with one.chat(http, {**ASKED, "stream": True}) as response:
            for part in parts[:2]:
                between.release()  # the next is sent only when this one has arrived
                assert await response.content.readuntil(b"\n\n") == part
            between.release()
            assert await response.content.read() == b"data: [DONE]\n\n"
    assert provider.seen[0].body["stream_options"] == {"include_usage": True}
    (call,) = recorded.calls
    assert call.tokens is not None and (call.tokens.input, call.tokens.output, call.streamed) == (7, 5, True)
    assert call.cost_usd == pytest.approx(12e-6) and call.status == 200


async def test_an_error_of_the_provider_passes_with_its_status_and_body(
    opened: Opens, provider: StubProvider, http: aiohttp.ClientSession, recorded: Recorded
) -> None:
    limits = {"Retry-After": "3", "X-RateLimit-Limit-Tokens": "5", "Anthropic-RateLimit-Tokens-Limit": "7"}
    provider.answer = replying(529, b'{"error": "busy"}', {**limits, "Set-Cookie": "a=b"})
    async with opened() as gateway:
        one = await sandbox(gateway)
        async with one.chat(http) as response:
            assert (response.status, await response.text()) == (529, '{"error": "busy"}')
            assert {name: response.headers[name] for name in limits} == limits
            assert "Set-Cookie" not in response.headers
    assert [(call.status, call.cost_usd) for call in recorded.calls] == [(529, 0.0)]


async def test_a_redirect_is_not_followed(one: Sandbox, provider: StubProvider, http: aiohttp.ClientSession) -> None:
    provider.answer = replying(307, b"", {"Location": f"{provider.url}/elsewhere"})
    async with one.chat(http) as response:
        assert response.status == 502 and "Location" not in response.headers
    assert len(provider.seen) == 1


async def test_a_provider_that_breaks_off_leaves_no_answer_that_looks_whole(
    opened: Opens, provider: StubProvider, http: aiohttp.ClientSession, recorded: Recorded
) -> None:
    async def breaks(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(chunk("a"))
        assert request.transport is not None
        request.transport.close()
        return response

    provider.answer = breaks
    async with opened() as gateway:
        one = await sandbox(gateway)
        with pytest.raises(aiohttp.ClientPayloadError):
            async with one.chat(http, {**ASKED, "stream": True}) as response:
                await response.read()
    assert [(call.status, call.cost_usd) for call in recorded.calls] == [(200, None)]


async def test_an_unreachable_provider_costs_nothing_and_its_error_hides_its_address(
    opened: Opens, http: aiohttp.ClientSession, recorded: Recorded
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with opened(providers=(openai(KEY, f"http://127.0.0.1:{port}/v1"),)) as gateway:
        one = await sandbox(gateway)
        async with one.chat(http) as response:
            assert response.status == 502 and str(port) not in await response.text()
    assert [(call.status, call.cost_usd) for call in recorded.calls] == [(None, 0.0)]


async def test_a_client_that_disconnects_ends_the_call_and_its_cost_is_unknown(
    opened: Opens, provider: StubProvider, http: aiohttp.ClientSession, recorded: Recorded
) -> None:
    between = asyncio.Semaphore(1)
    so_far = {"prompt_tokens": 7, "completion_tokens": 1}
    provider.answer = events([chunk("a", so_far), chunk("b")], between)
    async with opened() as gateway:
        one = await sandbox(gateway)
        async with one.chat(http, {**ASKED, "stream": True}) as response:
            await response.content.readuntil(b"\n\n")
            response.close()
        await asyncio.wait_for(provider.left.wait(), 30)
        await one.session.close()
    (call,) = recorded.calls
    # What it may have cost counts: 1,000 tokens out, and some bytes in.
    assert call.tokens is not None and call.cost_usd is None and 0.001 < call.counted_usd < 0.01


async def test_closing_the_session_ends_a_running_stream(
    one: Sandbox, provider: StubProvider, http: aiohttp.ClientSession, recorded: Recorded
) -> None:
    between = asyncio.Semaphore(1)
    provider.answer = events([chunk("a"), chunk("b")], between)
    async with one.chat(http, {**ASKED, "stream": True}) as response:
        await response.content.readuntil(b"\n\n")
        await one.session.close()
        assert len(recorded.calls) == 1
        with pytest.raises(aiohttp.ClientError):
            await response.content.read()
    await asyncio.wait_for(provider.left.wait(), 30)


async def test_the_variables_lead_programs_to_the_gateway_and_hold_no_key(opened: Opens) -> None:
    more = configured("open-router", "https://openrouter.ai/api/v1", {"THEIRS": KEY}, key_env="THEIRS")
    async with opened(providers=(more,)) as gateway:
        env = gateway.open_session("sandbox-1", Open()).env("http://10.0.0.1:8181", "http://10.0.0.1:8182")
    assert env["OPEN_ROUTER_BASE_URL"] == "http://10.0.0.1:8181/open-router/v1"
    assert env["HTTPS_PROXY"] == env["https_proxy"] == f"http://sandbox:{env['OPEN_ROUTER_API_KEY']}@10.0.0.1:8182"
    assert {"10.0.0.1", "localhost", "127.0.0.1"} <= {*env["NO_PROXY"].split(",")} and KEY not in str(env)
