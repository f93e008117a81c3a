"""Model requests that the gateway refuses: it never reaches a provider, and each refusal is reported."""

import asyncio
import io
import json
import socket

import aiohttp
import pytest

from sandbox_runtime.api.spec import Closed, Open
from sandbox_runtime.gateway import GatewayPolicy, GatewayPorts, GatewayRefusal
from sandbox_runtime.gateway.events import RefusalLog
from sandbox_runtime.gateway.providers import configured
from tests.sandbox_runtime.gateway.conftest import ASKED, Opens, Recorded, Sandbox, sandbox
from tests.sandbox_runtime.gateway.stub_provider import StubProvider


@pytest.mark.parametrize(
    "target",
    [
        "/openai/v1/files",
        "/openai/v1/chat/../files",
        "/openai/v1/chat/%2e%2e/files",
        "/openai/v1/chat%2fcompletions",
        "/openai/v1/messages",
        "/unknown/v1/chat/completions",
        "http://evil.example/openai/v1/chat/completions",
        "/openai/v1/chat/completions?key=mine",
        "/",
    ],
)
async def test_other_paths_are_refused_here(
    opened: Opens, provider: StubProvider, recorded: Recorded, target: str
) -> None:
    async with opened() as gateway:
        one = await sandbox(gateway)
        body = json.dumps(ASKED)
        head = f"POST {target} HTTP/1.1\r\nHost: x\r\nx-api-key: {one.token}\r\nContent-Length: {len(body)}\r\n\r\n"
        status = await raw(one.models, head + body)
    assert status in (400, 404) and provider.seen == []
    assert [refusal.sandbox for refusal in recorded.refusals] == ["sandbox-1"]


@pytest.mark.parametrize(
    "framing",
    [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        "Content-Length: +2\r\n\r\n{}",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        "Content-Length : 2\r\n\r\n{}",
    ],
)
async def test_a_request_with_two_meanings_is_refused(one: Sandbox, provider: StubProvider, framing: str) -> None:
    head = f"POST /openai/v1/chat/completions HTTP/1.1\r\nHost: x\r\nx-api-key: {one.token}\r\n"
    assert await raw(one.models, head + framing) == 400
    assert provider.seen == []


async def test_malformed_requests_are_counted_in_one_refusal_and_leave_no_traceback(
    opened: Opens, recorded: Recorded, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened() as gateway, opened(listen=GatewayPorts()) as shared:
        one = await sandbox(gateway)
        head = f"POST /openai/v1/chat/completions HTTP/1.1\r\nHost: x\r\nx-api-key: {one.token}\r\n"
        elsewhere = shared.open_session("other", Closed()).models_url
        assert elsewhere is not None
        broken = [
            "GET / HTTP/9.x\r\n\r\n",
            "GET / HTTP/1.1\r\nbad header\r\n\r\n",
            f"{head}Transfer-Encoding: chunked\r\n\r\nno number\r\n",
            f"GET /{'x' * 9000} HTTP/1.1\r\n\r\n",
        ]
        for request in broken * 3:
            assert await raw(one.models, request) == 400
            assert await raw(elsewhere, request) in (400, 401)
    assert [record.getMessage() for record in caplog.records] == []
    (first, repeated) = recorded.refusals
    assert (first.reason, first.times) == ("a request that is not valid HTTP", 1)
    assert repeated.times == len(broken) * 3 - 1


async def test_of_a_repeated_field_the_provider_gets_the_checked_value(
    opened: Opens, provider: StubProvider, http: aiohttp.ClientSession
) -> None:
    async with opened(GatewayPolicy(models=("m",))) as gateway:
        one = await sandbox(gateway)
        async with one.chat(http, b'{"model": "dear", "model": "m"}') as response:
            assert response.status == 200
        async with one.chat(http, b'{"model": "m", "model": "dear"}') as response:
            assert response.status == 403
    assert [seen.body for seen in provider.seen] == [{"model": "m"}]


async def test_a_token_is_valid_only_on_its_own_sandboxs_socket_and_until_the_session_closes(
    opened: Opens, http: aiohttp.ClientSession, recorded: Recorded
) -> None:
    async with opened(listen=GatewayPorts()) as gateway:
        one, two = await sandbox(gateway), await sandbox(gateway, name="sandbox-2")

        async def status(url: str, **headers: str) -> int:
            async with http.post(f"{url}/openai/v1/chat/completions", json=ASKED, headers=headers) as response:
                return response.status

        assert await status(one.models) == 401
        assert await status(one.models, Authorization=f"Bearer {two.token}") == 401
        assert [refusal.sandbox for refusal in recorded.refusals] == ["sandbox-1"]
        assert await status(one.models, Authorization=f"Bearer {one.token}") == 200
        shared = one.session.models_url
        assert shared is not None
        assert await status(shared, **{"api-key": one.token}) == await status(shared, **{"x-api-key": two.token}) == 200
        await one.session.close()
        assert await status(shared, **{"x-api-key": one.token}) == 401
        with pytest.raises(aiohttp.ClientConnectorError):
            await status(one.models, **{"x-api-key": one.token})
        with pytest.raises(RuntimeError):
            await one.session.serve(socket.create_server(("127.0.0.1", 0)), socket.create_server(("127.0.0.1", 0)))


@pytest.mark.parametrize(
    "more",
    [
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
        {"model": "gpt-4o-search-preview"},
        {"mcp_servers": [{"url": "https://evil.example"}]},
        {"web_search_options": {}},
        {"tools": [{"googleSearch": {}}]},
        {"messages": [{"content": [{"type": "input_audio", "input_audio": {"data": "https://evil.example"}}]}]},
        {"messages": [{"content": [{"type": "image", "image": " HTTPS://evil.example"}]}]},
        {"messages": [{"content": [{"type": "image_url", "image_url": "data:http://evil.example"}]}]},
        {"messages": [{"content": [{"type": "image_url", "image_url": {"url": "data:,https://evil.example"}}]}]},
        {"messages": [{"content": [{"type": "image_url", "image_url": {"url": "https://evil.example/?secret"}}]}]},
        {"messages": [{"content": [{"type": "tool_result", "content": [{"type": "image", "source": {"url": "x:"}}]}]}]},
        {"messages": [{"type": "text", "content": [{"type": "new", "new_url": ["https://evil.example"]}]}]},
        {"input": [{"type": "computer_call_output", "output": {"image_url": "https://evil.example"}}]},
        {"prompt": {"variables": {"a": {"type": "input_image", "image_url": "https://evil.example"}}}},
        {"model": "perplexity/sonar-pro"},
    ],
)
async def test_requests_that_make_a_provider_connect_to_hosts_are_refused_unless_egress_is_open(
    opened: Opens, provider: StubProvider, http: aiohttp.ClientSession, more: dict[str, object]
) -> None:
    async with opened() as gateway:
        closed, free = await sandbox(gateway), await sandbox(gateway, Open())
        path, body = "/openai/v1/chat/completions", {**ASKED, **more}
        if "mcp_servers" in more:
            path = "/anthropic/v1/messages"
        elif {"input", "prompt"} & more.keys():
            path, body = "/openai/v1/responses", {"model": "m", **more}
        async with closed.post(path, http, body) as response:
            assert response.status == 403
        assert provider.seen == []
        async with free.post(path, http, body) as response:
            assert response.status == 200


async def test_tools_of_the_program_and_pictures_within_the_request_pass(
    one: Sandbox, http: aiohttp.ClientSession
) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    tools = [{"type": "function", "function": {}}, {"name": "Bash", "input_schema": {}}, {"type": "bash_20250124"}]
    used = {"type": "tool_use", "input": {"type": "image", "source": {"url": "https://a.example"}}}
    audio = {"type": "input_audio", "input_audio": {"data": "//uQxAAA", "format": "mp3"}}
    found = {"type": "search_result", "source": "https://a.example", "title": "Note: a", "content": "https://a.example"}
    asked_for = {"type": "local_shell_call", "action": {"command": ["curl", "https://a.example"]}, "call_id": "a:1"}
    output = {"type": "output_text", "text": "https://a.example", "annotations": [{"url": "https://a.example"}]}
    variables = {"url": "https://a.example"}
    content = [picture, audio, used, found, asked_for, output]
    asked = {"tools": tools, "input": [{"content": content}], "prompt": {"variables": variables}}
    async with one.post("/openai/v1/responses", http, {"model": "m", **asked}) as response:
        assert response.status == 200


FIELDS = {"fallbacks": ["dear"], "models": ["dear"], "provider": {}, "plugins": [], "api_base": "https://evil.example"}


@pytest.mark.parametrize("field", FIELDS)
async def test_a_field_that_is_not_forwarded_is_refused_by_name_also_for_a_sandbox_that_may_reach_all(
    opened: Opens, provider: StubProvider, http: aiohttp.ClientSession, recorded: Recorded, field: str
) -> None:
    async with opened() as gateway:
        free = await sandbox(gateway, Open())
        async with free.chat(http, {**ASKED, field: FIELDS[field]}) as response:
            assert response.status == 400
            message = (await response.json())["error"]["message"]
            assert f"the field `{field}` is not forwarded to openai/chat/completions" in message
    assert provider.seen == []
    assert [(refusal.what, field in refusal.reason) for refusal in recorded.refusals] == [
        ("openai/chat/completions", True)
    ]


async def test_extra_fields_of_a_provider_are_forwarded(
    opened: Opens, provider: StubProvider, http: aiohttp.ClientSession
) -> None:
    own = configured("openai", f"{provider.url}/v1", {}, extra_fields=["chat_template_kwargs"])
    async with opened(providers=[own]) as gateway:
        one = await sandbox(gateway)
        async with one.chat(http, {**ASKED, "chat_template_kwargs": {}}, headers={"x-api-key": one.token}) as response:
            assert response.status == 200
    assert (provider.seen[0].body["chat_template_kwargs"], one.session.held_bytes) == ({}, 0)


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400),
        (b'{"model": 5}', {}, 400),
        (b'{"model": "m@preset/dear"}', {}, 400),
        (b'{"model": "m", "max_tokens": 1e3}', {}, 400),
        (b'{"model": "m", "n": 1000000000000, "max_tokens": 16000}', {}, 400),
        (b'{"model": "m", "user": ' + b"[" * 500 + b"]" * 500 + b"}", {}, 400),
        (b'{"model": "m", "a": [' + b"[]," * 2_000_000 + b"[]]}", {}, 413),
        (b'{"model": "m", "temperature": NaN}', {}, 400),
        (b"{}", {"Content-Encoding": "gzip"}, 415),
        (b" " * (33 * 2**20), {}, 413),
    ],
)
async def test_a_malformed_body_is_not_forwarded(
    one: Sandbox, provider: StubProvider, http: aiohttp.ClientSession, body: bytes, headers: dict[str, str], status: int
) -> None:
    with_token = {"Authorization": f"Bearer {one.token}", **headers}
    try:
        async with one.chat(
            http, io.BytesIO(body), headers=with_token, skip_auto_headers=["Content-Encoding"]
        ) as response:
            assert response.status == status
    except aiohttp.ClientConnectionError:
        assert status == 413  # the connection was closed before all of it was sent
    assert one.session.held_bytes == len(one.session.models) == 0
    assert provider.seen == []


async def test_models_that_are_not_listed_are_refused(
    opened: Opens, http: aiohttp.ClientSession, recorded: Recorded
) -> None:
    async with opened(GatewayPolicy(models=("gpt-*", "anthropic/claude-*"))) as gateway:
        one = await sandbox(gateway)
        async with one.chat(http, {**ASKED, "model": "gpt-x"}) as response:
            assert response.status == 200
        async with one.post("/anthropic/v1/messages", http, {**ASKED, "model": "claude-x"}) as response:
            assert response.status == 200
        for _ in range(3):
            async with one.chat(http, {**ASKED, "model": "claude-é"}) as response:
                assert response.status == 403 and (await response.json())["type"] == "error"
        await one.session.close()
    assert [(refusal.what, refusal.times) for refusal in recorded.refusals] == [
        ("openai/claude-\\xe9", 1),
        ("openai/claude-\\xe9", 2),
    ]


async def test_calls_per_minute_are_over_all_sandboxes(
    opened: Opens, http: aiohttp.ClientSession, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox_runtime.gateway.model_requests.RATE_WAIT_S", 1.0)
    policy = GatewayPolicy(calls_per_minute=2, cap_usd=1.0, prices={"m": (0.0, 10.0)})
    async with opened(policy) as gateway:
        one, two = await sandbox(gateway), await sandbox(gateway, name="sandbox-2")
        for who, status in ((one, 200), (two, 200), (one, 429)):
            async with who.chat(http) as response:
                assert response.status == status
        assert 50 < int(response.headers["Retry-After"]) <= 60
        assert gateway.spend.spent_usd == pytest.approx(sum(call.counted_usd for call in recorded.calls))
    assert len(recorded.calls) == 2 and len(recorded.refusals) == 1


async def test_a_connection_without_a_token_is_closed_soon_and_one_with_a_token_stays(
    opened: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox_runtime.gateway.gateway_session.UNIDENTIFIED_TIMEOUT_S", 1.0)
    async with opened() as gateway:
        one = await sandbox(gateway)
        port = int(one.models.rpartition(":")[2])
        known = await asyncio.open_connection("127.0.0.1", port)
        request = f"GET / HTTP/1.1\r\nHost: x\r\nx-api-key: {one.token}\r\n\r\n".encode()
        known[1].write(request)
        assert b"404" in await asyncio.wait_for(known[0].readline(), 30)
        wrong_token = await asyncio.open_connection("127.0.0.1", port)
        wrong_token[1].write(b"POST /openai")
        assert await asyncio.wait_for(wrong_token[0].read(), 30) == b""
        known[1].write(request)
        assert b"404" in await asyncio.wait_for(known[0].readuntil(b"404"), 30)
        for _, writer in (known, wrong_token):
            writer.close()


def test_reports_of_repeated_refusals_are_bounded() -> None:
    recorded: list[GatewayRefusal] = []
    refusals = RefusalLog("sandbox-1", recorded.append)
    for number in range(1000):
        refusals.add("x" * 10_000 + "\x1b[2J", "no")
        refusals.add(f"host-{number}:443", "no")
    refusals.close()
    assert len(recorded) < 210 and sum(refusal.times for refusal in recorded) == 2000
    assert max(len(refusal.what) for refusal in recorded) <= 200


async def raw(url: str, request: str) -> int:
    """The status of the answer to exactly this."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    writer.write(request.encode())
    line = await asyncio.wait_for(reader.readline(), 30)
    writer.close()
    return int(line.split()[1])
