"""Every bad input gets an error of the right kind, and the next good call succeeds."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from protocol import MakeReflectiveDatasetParams, Params, ProposeNewTextsParams, ScoreParams, errors
from rpc_server import http
from rpc_server.wire import read_params

GOOD = {"jsonrpc": "2.0", "id": 7, "method": "discover"}


def code(answer: Any) -> int:
    assert answer["jsonrpc"] == "2.0"
    assert "result" not in answer
    return answer["error"]["code"]


async def test_a_request_without_a_host_is_refused(server: Any) -> None:
    answer = await server.raw(b"POST /rpc HTTP/1.0\r\nContent-Length: 0\r\n\r\n")
    assert answer.split(b" ")[1] == b"403"
    refused = await server.raw(b"POST /rpc HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n")
    assert b"Connection: close" in refused, "else its body would be read as the next request"
    await server.still_works()


async def test_listed_hosts_and_origins_are_let_in(start: Any) -> None:
    server = await start(allowed_hosts=("Box.example", "other.example:8443", "https://ui.example"))
    for host, expected in (
        ("box.example:1", 200),
        ("other.example:8443", 200),
        ("other.example:1", 403),
        ("box.example:x", 403),
    ):
        assert (await server.post(GOOD, headers={"Host": host, "Authorization": "Bearer  the-token"}))[0] == expected
    assert (await server.post(GOOD, headers={"Origin": "https://ui.example"}))[0] == 200
    for foreign in ("https://ui.example.evil", "http://localhost:3000", "http://127.0.0.1:1", server.url, "null"):
        assert (await server.post(GOOD, headers={"Origin": foreign}))[0] == 403


async def test_a_body_that_stops_coming_is_given_up(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_IDLE_S", 0.1)
    server = await start()
    head = f"POST /rpc HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\n"
    answer = await server.raw(f"{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{".encode())
    assert answer.startswith(b"HTTP/1.1 400")
    assert code(orjson.loads(answer.rpartition(b"\r\n\r\n")[2])) == errors.ParseError.code

    async def slowly() -> AsyncIterator[bytes]:
        for part in (b'{"jsonrpc": "2.0", ', b'"id": 7, ', b'"method": ', b'"discover"}'):
            yield part
            await asyncio.sleep(0.05)

    assert (await server.post(slowly()))[0] == 200
    await server.still_works()


@pytest.mark.parametrize("begun", [b"", b"POST /rpc HTTP/1.1\r\nHost: local"])
async def test_a_connection_that_never_asks_anything_is_closed(
    start: Any, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    monkeypatch.setattr(http, "_IDLE_S", 0.1)
    server = await start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(begun)
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize(
    ("model", "flood", "path"),
    [
        (ProposeNewTextsParams, {"components_to_update": [0] * 1_000_000}, "components_to_update[0]"),
        (ProposeNewTextsParams, {"reflective_dataset": {"system": [0] * 1_000_000}}, "reflective_dataset.system[0]"),
        (MakeReflectiveDatasetParams, {"eval_batch": {"batch": [0] * 1_000_000}}, "eval_batch.batch[0]"),
        (MakeReflectiveDatasetParams, {"eval_batch": {"results": [0] * 1_000_000}}, "eval_batch.results[0]"),
        (ScoreParams, {"results": [0] * 1_000_000}, "results[0]"),
    ],
)
def test_a_million_faults_cost_no_more_than_one(model: type[Params], flood: dict[str, Any], path: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(errors.InvalidParams) as caught:
            read_params(model, flood)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert path in [one["path"] for one in caught.value.details["errors"]]
    assert peak < 2**20


async def test_a_defect_of_the_server_is_logged_and_never_sent(server: Any, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(errors.InternalError) as caught:
        await server.evaluate({"raise": "the secret text"})
    assert "secret" not in str(caught.value.to_wire())
    assert "the secret text" in caplog.text
    await server.still_works()


@pytest.mark.parametrize(
    "request_text",
    [
        b"POST /rpc HTTP/1.1\r\nHost: localhost\r\nAuthorization : Bearer the-token\r\n\r\n",
        b"POST /rpc HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer the-token\x01\r\n\r\n",
        b"the-token\r\n\r\n",
    ],
)
async def test_what_is_not_even_http_is_refused_without_a_word_of_it(server: Any, request_text: bytes) -> None:
    answer = await server.raw(request_text)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith((b"HTTP/1.1 400", b"HTTP/1.0 400"))
    assert b"Server: evolverpc" in head
    assert b"aiohttp" not in answer
    assert body == b""
    await server.still_works()
