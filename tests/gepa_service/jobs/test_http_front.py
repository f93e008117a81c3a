"""The port by which sandboxes elsewhere reach a job: what goes through it, and what does not."""

import asyncio
import io
import re
import socket
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from gepa_service.jobs.http_front import MOST_EXPORTED, HttpFront, fronted
from gepa_service.jobs.messages import Front
from sandbox_runtime import SandboxError
from tests.support.web_hosts import web_host

LARGE = 3 << 18


@pytest.fixture
async def front() -> AsyncIterator[HttpFront]:
    listener = socket.create_server(("127.0.0.1", 0))
    async with HttpFront(f"http://127.0.0.1:{listener.getsockname()[1]}").listening(listener) as front:
        yield front


async def test_a_request_arrives_whole_at_the_server_of_its_route(front: HttpFront) -> None:
    async def echo(request: web.Request) -> web.Response:
        body = await request.read()
        names = ("Host", "Authorization", "X-Gepa-Token")
        found = {"path": request.raw_path, "bytes": len(body), **{name: request.headers[name] for name in names}}
        return web.json_response(found, status=203, headers={"Retry-After": "3"})

    async with web_host(echo) as host, aiohttp.ClientSession() as client:
        address = front.route("server-1", f"http://{host}")
        headers = {"Authorization": "Bearer connect", "X-Gepa-Token": "own"}
        async with client.post(f"{address}/rpc%2Fa?b=%20", data=b"x" * LARGE, headers=headers) as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (203, "3")
            assert await answer.json() == {"path": "/rpc%2Fa?b=%20", "bytes": LARGE, "Host": host, **headers}


async def test_parts_of_a_response_arrive_before_its_end(front: HttpFront) -> None:
    read = asyncio.Event()

    async def stream(request: web.Request) -> web.StreamResponse:
        reply = web.StreamResponse()
        await reply.prepare(request)
        await reply.write(b"first")
        await asyncio.wait_for(read.wait(), 10)
        await reply.write(b" last")
        return reply

    async with (
        web_host(stream) as host,
        aiohttp.ClientSession() as client,
        client.get(front.route("models", f"http://{host}")) as answer,
    ):
        assert await answer.content.readany() == b"first"
        read.set()
        assert await answer.content.read() == b" last"


@pytest.mark.parametrize("length", [None, 40])
async def test_a_response_that_breaks_off_is_not_taken_for_a_whole_one(front: HttpFront, length: int | None) -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        reply = web.StreamResponse()
        reply.content_length = length
        await reply.prepare(request)
        await reply.write(b'{"')
        assert request.transport is not None
        request.transport.close()
        return reply

    async with (
        web_host(cut) as host,
        aiohttp.ClientSession() as client,
        client.get(front.route("models", f"http://{host}")) as answer,
    ):
        with pytest.raises(aiohttp.ClientPayloadError):
            await asyncio.wait_for(answer.read(), 10)


def test_a_forwarded_port_that_another_process_took_ends_the_attempt_and_not_the_job() -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        front = Front(port=port, url="https://front.example")
        with pytest.raises(SandboxError, match=f"port {port}, .* is taken"), fronted(front):
            pass


async def test_the_collector_gets_data_of_the_driver_with_the_key_of_the_operator_and_answers_by_a_status(
    front: HttpFront,
) -> None:
    async def echo(request: web.Request) -> web.Response:
        names = ("Authorization", "X-Api-Key", "Content-Encoding")
        got.append((request.path, await request.text(), *(request.headers.get(name) for name in names)))
        return web.Response(status=202, text=request.headers["X-Api-Key"])

    got: list[tuple[str | None, ...]] = []
    async with web_host(echo) as host, aiohttp.ClientSession(auto_decompress=False) as client:
        named = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{host}/otlp", "OTEL_EXPORTER_OTLP_HEADERS": "A=b,X-Api-Key=k="}
        [address] = front.route_to_collector(named).values()
        headers = {"Authorization": "Bearer of-the-driver", "X-Api-Key": "its own", "Content-Encoding": "x"}
        async with client.post(f"{address}/v1/logs", data=b"data", headers=headers) as answer:
            assert (answer.status, await answer.text()) == (202, "")
        assert got == [("/otlp/v1/logs", "data", None, "k=", "x")]
        refused = [("GET", "v1/logs", b""), ("POST", "v1/keys", b""), ("POST", "v1/logs", bytes(MOST_EXPORTED + 1))]
        for method, path, data in refused:
            async with client.request(method, f"{address}/{path}", data=io.BytesIO(data)) as answer:
                assert answer.status in (403, 413)
        assert len(got) == 1
    assert re.fullmatch(r"http://.*/collector-[0-9a-f]{32}", address)
    assert front.route_to_collector({"OTEL_EXPORTER_OTLP_HEADERS": "X-Api-Key=k"}) == {}
