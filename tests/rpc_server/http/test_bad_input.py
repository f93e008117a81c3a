"""Every bad input gets an error of the right kind, and the next good call succeeds."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from protocol import MakeReflectiveDatasetParams, Params, ProposeNewTextsParams, ScoreParams, errors
from rpc_server.http import app
from rpc_server.rpc.params import read_params

GOOD = {"jsonrpc": "2.0", "id": 7, "method": "discover"}


def request(method: str = "evaluate", **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}


def code(answer: Any) -> int:
    assert answer["jsonrpc"] == "2.0"
    assert "result" not in answer
    return answer["error"]["code"]


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        "Bearer the-toke",
        "Bearer the-token2",
        "Basic the-token",
        "the-token",
    ],
)
async def test_without_the_right_token_nothing_is_answered(server: Any, header: str | None) -> None:
    status, answer = await server.post(GOOD, headers={"Authorization": header})
    assert (status, code(answer), answer["id"]) == (401, errors.Unauthorized.code, None)
    await server.still_works()


async def test_a_refusal_without_a_token_names_the_scheme(server: Any) -> None:
    async with server.session.post(server.url + "/rpc", json=GOOD) as response:
        assert response.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil:1", ""])
async def test_a_foreign_host_is_refused_with_any_token(server: Any, host: str) -> None:
    for authorization in (f"Bearer {server.token}", None):
        status, answer = await server.post(GOOD, headers={"Host": host, "Authorization": authorization})
        assert (status, code(answer)) == (403, errors.Unauthorized.code)
        assert answer["error"]["data"]["reason"] == "host"
    await server.still_works()


async def test_a_request_without_a_host_is_refused(server: Any) -> None:
    answer = await server.raw(b"POST /rpc HTTP/1.0\r\nContent-Length: 0\r\n\r\n")
    assert answer.split(b" ")[1] == b"403"
    await server.still_works()


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:99", "127.0.0.1:1", "[::1]", "[::1]:80"])
async def test_every_loopback_name_is_let_in(server: Any, host: str) -> None:
    assert (await server.post(GOOD, headers={"Host": host}))[0] == 200


async def test_listed_hosts_and_origins_are_let_in(start: Any) -> None:
    server = await start(allowed_hosts=("Box.example", "other.example:8443"), allowed_origins=("https://ui.example",))
    for host, expected in (("box.example:1", 200), ("other.example:8443", 200), ("other.example:1", 403)):
        assert (await server.post(GOOD, headers={"Host": host}))[0] == expected
    assert (await server.post(GOOD, headers={"Origin": "https://ui.example"}))[0] == 200
    assert (await server.post(GOOD, headers={"Origin": "https://ui.example.evil"}))[0] == 403


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1", ""])
async def test_an_origin_that_is_not_listed_is_refused(server: Any, origin: str) -> None:
    status, answer = await server.post(GOOD, headers={"Origin": origin})
    assert (status, code(answer), answer["error"]["data"]["reason"]) == (403, errors.Unauthorized.code, "origin")
    await server.still_works()


@pytest.mark.parametrize("path", ["/", "/rpc/", "/RPC", "/rpc/x", "//rpc", "/health/x", "/../rpc%00"])
async def test_any_other_path_is_not_found(server: Any, path: str) -> None:
    status, answer = await server.post(GOOD, path=path)
    assert (status, code(answer)) == (404, errors.InvalidRequest.code)
    await server.still_works()


@pytest.mark.parametrize("verb", ["GET", "PUT", "DELETE", "OPTIONS", "PATCH"])
async def test_any_other_verb_is_not_allowed(server: Any, verb: str) -> None:
    status, answer = await server.post(GOOD, verb=verb)
    assert (status, code(answer)) == (405, errors.InvalidRequest.code)
    await server.still_works()


@pytest.mark.parametrize("kind", [None, "", "text/plain", "application/jsonp", "multipart/form-data; boundary=x"])
async def test_any_other_content_type_is_refused(server: Any, kind: str | None) -> None:
    status, answer = await server.post(GOOD, headers={"Content-Type": kind})
    assert (status, code(answer)) == (415, errors.InvalidRequest.code)
    await server.still_works()


async def test_a_charset_beside_the_content_type_is_fine(server: Any) -> None:
    assert (await server.post(GOOD, headers={"Content-Type": "application/json; charset=utf-8"}))[0] == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b'{"jsonrpc": "2.0", "method": "disc',
        b"\xff\xfe{}",
        b'{"jsonrpc":"2.0","id":1,"method":"\xc3\x28"}',
        b'{"jsonrpc":"2.0","id":1,"method":"discover","params":{"x":NaN}}',
        b'{"jsonrpc":"2.0","id":1,"method":"discover","params":{"x":-Infinity}}',
        b'{"x":"\\ud800"}',
        b"{} {}",
        b"{'a': 1}",
        b"[" * 10_000 + b"]" * 10_000,
        b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    ],
    ids=lambda body: repr(body[:20]),
)
async def test_what_is_not_json_in_utf8_is_a_parse_error(server: Any, body: bytes) -> None:
    status, answer = await server.post(body)
    assert (status, code(answer), answer["id"]) == (400, errors.ParseError.code, None)
    await server.still_works()


@pytest.mark.parametrize(
    "message",
    [
        5,
        b"null",
        "discover",
        {},
        {"id": 1, "method": "discover"},
        {**GOOD, "jsonrpc": "1.0"},
        {**GOOD, "jsonrpc": 2.0},
        {**GOOD, "method": 5},
        {**GOOD, "method": None},
        {"jsonrpc": "2.0", "id": 1},
        {**GOOD, "id": 1.5},
        {**GOOD, "id": True},
        {**GOOD, "id": 2**53},
        {**GOOD, "id": -(2**53)},
        {**GOOD, "id": {}},
        {**GOOD, "id": [1]},
        {**GOOD, "params": None},
        {**GOOD, "params": "x"},
        {**GOOD, "params": 3},
        {**GOOD, "extra": 1},
        {**GOOD, **{str(number): number for number in range(1000)}},
    ],
    ids=lambda message: repr(message)[:60],
)
async def test_json_that_is_no_request_is_invalid(server: Any, message: Any) -> None:
    status, answer = await server.post(message)
    assert (status, code(answer), answer["id"]) == (400, errors.InvalidRequest.code, None)
    await server.still_works()


@pytest.mark.parametrize("given", ["x", "", 0, 2**53 - 1, -(2**53 - 1), None])
async def test_every_allowed_id_comes_back_as_it_was(server: Any, given: Any) -> None:
    status, answer = await server.post({**GOOD, "id": given})
    assert status == 200
    assert answer["id"] == given
    assert "result" in answer


async def test_params_by_position_are_refused(server: Any) -> None:
    for params in ([1], []):
        status, answer = await server.post({**GOOD, "params": params})
        assert (status, code(answer), answer["id"]) == (200, errors.InvalidParams.code, 7)
    assert await server.post({"jsonrpc": "2.0", "method": "discover", "params": [1]}) == (204, None)


async def test_a_notification_gets_no_answer_even_when_it_fails(server: Any) -> None:
    for params in ({"candidate": server.seed, "batch": [{"id": "0", "data": "noted"}]}, {"nonsense": 1}):
        message = {"jsonrpc": "2.0", "method": "evaluate", "params": params}
        assert await server.post(message) == (204, None)
    assert await server.post({"jsonrpc": "2.0", "method": "no_such_method"}) == (204, None)
    assert server.program.ran == ["noted"]


async def test_an_unknown_method_is_named(server: Any) -> None:
    for method in ("nonsense", "", "rpc.nonsense", "__class__", "apply_mutation"):
        status, answer = await server.post({**GOOD, "method": method})
        assert (status, code(answer), answer["id"]) == (200, errors.MethodNotFound.code, 7)
        assert answer["error"]["data"] == {"retryable": False, "method": method}
    await server.still_works()


async def test_a_body_declared_too_large_is_refused_before_it_is_sent(start: Any) -> None:
    server = await start(max_request_bytes=2000)
    head = (
        f"POST /rpc HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\n"
        "Content-Type: application/json\r\nContent-Length: 209715200\r\n\r\n"
    )
    answer = await server.raw(head.encode())
    assert answer.split(b" ")[1] == b"413"
    error = orjson.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    assert error["code"] == errors.LimitExceeded.code
    assert error["data"] == {"retryable": False, "limit": "max_request_bytes", "allowed": 2000, "given": 209715200}
    await server.still_works()


async def test_a_body_of_200_mb_sent_in_pieces_is_cut_short(server: Any) -> None:
    sent = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(200):
            yield b" " * 2**20
            sent += 1
            await asyncio.sleep(0)

    try:
        status, answer = await server.post(pieces())
    except OSError:
        pass  # the server may close before the client is done; what counts is how much it took
    else:
        assert (status, code(answer)) == (413, errors.LimitExceeded.code)
        assert answer["error"]["data"]["allowed"] == 64 * 2**20
    assert sent < 200
    await server.still_works()


async def test_a_body_of_exactly_the_limit_is_taken(start: Any) -> None:
    server = await start(max_request_bytes=4096)
    body = orjson.dumps(GOOD)
    assert (await server.post(body + b" " * (4096 - len(body))))[0] == 200
    assert (await server.post(body + b" " * (4097 - len(body))))[0] == 413


async def test_a_client_that_expects_100_continue_gets_it_only_if_accepted(server: Any) -> None:
    body = orjson.dumps(GOOD)

    def head(token: str) -> bytes:
        return (
            f"POST /rpc HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n"
        ).encode()

    assert (await server.raw(head("wrong"))).startswith(b"HTTP/1.1 401")
    welcome = await server.raw(head(server.token) + body)
    assert welcome.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK")


async def test_a_truncated_body_affects_no_other_call(server: Any) -> None:
    head = (
        f"POST /rpc HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\n"
        "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    )
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(head.encode())
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    await server.still_works()


async def test_a_body_that_stops_coming_is_given_up(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_IDLE_S", 0.1)
    server = await start()
    head = f"POST /rpc HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\n"
    answer = await server.raw(f"{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{".encode())
    assert answer.startswith(b"HTTP/1.1 400")
    assert code(orjson.loads(answer.rpartition(b"\r\n\r\n")[2])) == errors.ParseError.code
    await server.still_works()


@pytest.mark.parametrize("begun", [b"", b"POST /rpc HTTP/1.1\r\nHost: local"])
async def test_a_connection_that_never_asks_anything_is_closed(
    start: Any, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    monkeypatch.setattr(app, "_IDLE_S", 0.1)
    server = await start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(begun)
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    await writer.wait_closed()


async def test_a_broken_chunked_body_is_a_bad_request(server: Any) -> None:
    head = (
        f"POST /rpc HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.token}\r\n"
        "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
    )
    answer = await server.raw(head.encode())
    assert answer.split(b" ")[1] == b"400"
    await server.still_works()


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({}, "candidate"),
        ({"candidate": {"system": "x"}, "batch": [], "captur_traces": True}, "captur_traces"),
        ({"candidate": {"system": 5}, "batch": []}, "candidate.system"),
        ({"candidate": {"system": "x"}, "batch": {}}, "batch"),
        ({"candidate": {"system": "x"}, "batch": ["x"]}, "batch[0]"),
        ({"candidate": {"system": "x"}, "batch": [{"id": "0", "data": 1}, {"id": 1, "data": 2}]}, "batch[1].id"),
        ({"candidate": {"system": "x"}, "batch": [{"id": "0"}]}, "batch[0]"),
        ({"candidate": {"system": "x"}, "batch": [{"id": "0", "data": 1, "split": "a"}]}, "batch[0]"),
        ({"candidate": {"system": "x"}, "batch": [{"id": "0", "data": 1, "extra": 2}]}, "batch[0].extra"),
        ({"candidate": {"system": "x"}, "batch": [], "capture_traces": 1}, "capture_traces"),
        ({"candidate": {"system": "x"}, "batch": [], "_meta": {"wait_s": -1, "call_id": "a"}}, "_meta.wait_s"),
        ({"candidate": {"system": "x"}, "batch": [], "_meta": {"wait_s": 1}}, "_meta.wait_s"),
        ({"candidate": {"system": "x"}, "batch": [], "_meta": {"call_id": ""}}, "_meta.call_id"),
        ({"candidate": {"system": "x"}, "batch": [], "_meta": 5}, "_meta"),
        ({"candidate": {"system": "x"}, "batch": [], "meta": {}}, "meta"),
    ],
    ids=repr,
)
async def test_a_wrong_field_is_named_by_its_path(server: Any, params: dict[str, Any], path: str) -> None:
    status, answer = await server.post(request(**params))
    assert (status, code(answer)) == (200, errors.InvalidParams.code)
    data = answer["error"]["data"]
    assert data["retryable"] is False
    assert data["errors"][0]["path"] == path
    assert data["errors"][0]["message"]
    assert "pydantic" not in str(data)
    await server.still_works()


async def test_unknown_keys_of_meta_are_allowed(server: Any) -> None:
    assert (await server.call("discover", traceparent="00-1"))["program"]["name"] == "fake"


async def test_an_unknown_version_is_answered_with_those_supported(server: Any) -> None:
    with pytest.raises(errors.VersionNotSupported) as caught:
        await server.call("evaluate", {"a_field_of_version_99": 1}, protocol_version="99")
    assert caught.value.details == {"supported": ["1"], "requested": "99"}
    await server.call("discover", protocol_version="1")
    await server.still_works()


async def test_of_many_faults_the_first_are_reported(server: Any) -> None:
    for count, reported in ((900, 20), (5000, 1)):
        unknown = {f"field{number}": 1 for number in range(count)}
        with pytest.raises(errors.InvalidParams) as caught:
            await server.call("evaluate", {"candidate": server.seed, "batch": [], **unknown})
        assert len(caught.value.details["errors"]) == reported


async def test_of_a_list_the_first_faulty_member_alone_is_reported(server: Any) -> None:
    with pytest.raises(errors.InvalidParams) as caught:
        await server.call("evaluate", {"candidate": server.seed, "batch": [{"id": "0", "data": 1}, *[5] * 900]})
    assert [one["path"] for one in caught.value.details["errors"]] == ["batch[1]"]


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


async def test_more_results_than_a_batch_may_have_are_refused_unseen(start: Any, fake_program: Any) -> None:
    server = await start(fake_program("scoring"), max_batch_size=10)
    results = {"batch": [], "results": [0] * 11}
    for method, params in (
        ("score", results),
        ("make_reflective_dataset", {"candidate": server.seed, "eval_batch": results, "components_to_update": []}),
    ):
        with pytest.raises(errors.LimitExceeded) as caught:
            await server.call(method, params)
        assert caught.value.details == {"limit": "max_batch_size", "allowed": 10, "given": 11}


async def test_data_nested_five_hundred_deep_comes_back_whole(server: Any) -> None:
    deep: Any = 1
    for _ in range(500):
        deep = [deep]
    body = b'{"jsonrpc":"2.0","id":1,"method":"evaluate","params":{"candidate":{"system":"x"},"batch":[%b]}}' % (
        b'{"id":"0","data":' + b"[" * 500 + b"1" + b"]" * 500 + b"}"
    )
    status, answer = await server.post(body)
    assert status == 200
    assert answer["result"]["results"][0]["output"] == deep


async def test_a_defect_of_the_server_is_logged_and_never_sent(server: Any, caplog: pytest.LogCaptureFixture) -> None:
    for data in ({"raise": "the secret text"}, {"raise": "the secret text", "n": 1}):
        with pytest.raises(errors.InternalError) as caught:
            await server.evaluate(data)
        assert "secret" not in str(caught.value.to_wire())
    assert "the secret text" in caplog.text
    await server.still_works()


async def test_a_result_that_is_not_json_is_a_defect_of_the_server(
    start: Any, fake_program: Any, caplog: pytest.LogCaptureFixture
) -> None:
    program = fake_program("finalize")
    program.answers["finalize"] = {"message": "x", "more": object()}
    server = await start(program)
    run = {"id": "r", "metric_calls": 1, "candidates": 1, "seed_score": 0.0}
    with pytest.raises(errors.InternalError):
        await server.call("finalize", {"best_candidate": server.seed, "best_score": 1.0, "run": run})
    assert "not JSON" in caplog.text
    await server.still_works()


@pytest.mark.parametrize(
    "request_text",
    [
        b"POST /rpc HTTP/1.1\r\nHost: localhost\r\nAuthorization : Bearer the-token\r\n\r\n",
        b"POST /rpc HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer the-token\x01\r\n\r\n",
        b"the-token\r\n\r\n",
        b"\x16\x03\x01\x02\x00the-token\r\n\r\n",
    ],
)
async def test_what_is_not_even_http_is_refused_without_a_word_of_it(server: Any, request_text: bytes) -> None:
    answer = await server.raw(request_text)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith((b"HTTP/1.1 400", b"HTTP/1.0 400"))
    assert b"Server: gepa-server" in head
    assert b"aiohttp" not in answer
    assert body == b""
    await server.still_works()


async def test_health_needs_no_token_and_reports_nothing_else(server: Any) -> None:
    assert await server.post(None, path="/health", verb="GET", headers={"Authorization": None}) == (
        200,
        {"status": "ok"},
    )
    server.program.ready = False
    assert await server.post(None, path="/health", verb="GET") == (503, {"status": "unavailable"})
    assert (await server.post(None, path="/health", verb="POST"))[0] == 405
    assert (await server.post(None, path="/health", verb="GET", headers={"Host": "evil.example"}))[0] == 403


async def test_no_answer_names_the_software_behind_it(server: Any) -> None:
    for path in ("/rpc", "/health", "/nowhere"):
        async with server.session.get(server.url + path) as response:
            assert response.headers["Server"] == "gepa-server"
