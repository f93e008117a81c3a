import asyncio
import threading
import time

import orjson
import pytest
from aiohttp import web

from gepa_client.errors import BadResponse, ConnectionLost, InstanceChanged, Refused
from gepa_client.gepa.rows import Row, load_rows
from gepa_client.transport import calls, rpc_client
from gepa_client.transport.calls import Call, Reply
from gepa_client.transport.rpc_client import RpcClient
from protocol.errors import LimitExceeded, Unauthorized, VersionNotSupported
from tests.support.waiting import eventually

EXAMPLE = {"id": "a", "data": 1}
SEED = {"system": "s", "style": "t"}


class LossyNetwork:
    """Before the server: an answer is cut off, hangs or is a 502 as the next of `faults` states, and passes without."""

    def __init__(self, host, server):
        self.server, self.faults = server, []
        self.url = host.serve(self.handle)

    async def handle(self, request):
        answer = await self.server.handle(request)
        fault = self.faults.pop(0) if self.faults else None
        if fault == "cut":
            request.transport.close()
        elif fault == "hang":
            await asyncio.sleep(30)
        return web.Response(status=502) if fault == "502" else answer


@pytest.fixture
def network(host, server):
    return LossyNetwork(host, server)


@pytest.mark.parametrize(
    "url",
    [
        "http://user:pw@localhost",
        "http://localhost/?t=1",
    ],
)
def test_an_address_that_would_leak_is_refused_before_anything_is_sent(url):
    with pytest.raises(Refused):
        RpcClient(url, token="t")


async def test_a_server_of_other_versions_only_is_not_spoken_to(server):
    discovered = await server.discover({})
    server.replies["discover"] = lambda _: discovered | {"protocol_versions": ["9"]}
    async with RpcClient(server.url) as client:
        with pytest.raises(VersionNotSupported) as caught:
            await client.discover()
    assert caught.value.details == {"supported": ["9"], "requested": "1"}


@pytest.mark.parametrize("offered", [[], ["untyped_rows"]])
async def test_only_a_server_that_reads_untyped_rows_gets_their_mark(server, tmp_path, offered):
    server.capabilities = [*server.capabilities, *offered]
    (tmp_path / "r.CSV").write_text("n\n1\n")
    [row], typed = [each.wire for each in load_rows(tmp_path / "r.CSV")], Row("b", {"n": 1}).wire
    async with RpcClient(server.url) as client:
        await client.discover()
        answer = await client.evaluate(SEED, [row, typed], capture_traces=True)
        eval_batch = {"batch": [row, typed], "results": answer["results"]}
        params = {"candidate": SEED, "eval_batch": eval_batch, "components_to_update": ["style"]}
        await client.call("make_reflective_dataset", params)
    received = [params["batch"] for params in server.called("evaluate")]
    received += [params["eval_batch"]["batch"] for params in server.called("make_reflective_dataset")]
    assert [["untyped" in each for each in batch] for batch in received] == [[bool(offered), False]] * 2


async def test_an_idempotent_method_survives_a_lost_answer(server, network):
    network.faults += ["cut", "502"]
    async with RpcClient(network.url) as client:
        assert (await client.discover()).program.name == "scripted"
    assert len(server.called("discover")) == 3


async def test_a_pending_call_is_followed_until_its_answer(server):
    release = threading.Event()

    async def slowly(candidate, example, traced):
        await asyncio.to_thread(release.wait, 5)
        return server.ok(0.5)

    server.evaluate_one = slowly
    async with RpcClient(server.url, wait_s=0.05) as client:
        await client.discover()
        call = asyncio.create_task(client.evaluate(SEED, [EXAMPLE], call_id="c1"))
        await eventually(lambda: server.called("get_result"))
        release.set()
        answer = await call
    assert answer["results"][0]["score"] == 0.5
    assert server.runs["a"] == 1


async def test_a_call_ends_at_its_deadline(server):
    server.evaluate_one = lambda *_: asyncio.sleep(30)
    async with RpcClient(server.url, wait_s=0.0) as client:
        await client.discover()
        started = time.monotonic()
        with pytest.raises(ConnectionLost):
            await client.evaluate(SEED, [EXAMPLE], call_id="c1", timeout_s=0.3)
        assert len(server.called("get_result")) <= 4, "a server that does not wait is not asked without end"
        with pytest.raises(ConnectionLost):
            await client.evaluate(SEED, [EXAMPLE], timeout_s=0.3)
    assert time.monotonic() - started < 5


async def test_an_answer_that_never_comes_is_asked_for_again_and_collected(server, network, monkeypatch):
    monkeypatch.setattr(rpc_client, "ANSWER_GRACE_S", 0.2)
    async with RpcClient(network.url, wait_s=0.1) as client:
        await client.discover()
        network.faults.append("hang")
        answer = await client.evaluate(SEED, [EXAMPLE], call_id="c1")
    assert answer["results"][0]["score"] == 1.0
    assert server.runs["a"] == 1


def answering(status=200, body=b""):
    async def handler(request):
        return web.Response(status=status, body=body)

    return handler


async def elsewhere(request):
    raise web.HTTPTemporaryRedirect("http://127.0.0.1:9/rpc")


async def in_chunks(request):
    response = web.StreamResponse()
    await response.prepare(request)
    for _ in range(40):
        await response.write(b"x" * 1000)
    return response


async def of_another_request(request):
    return web.Response(body=orjson.dumps({"jsonrpc": "2.0", "id": 999, "result": {}}))


@pytest.mark.parametrize(
    ("handler", "error"),
    [
        (answering(body=b"[]"), BadResponse),
        (answering(body=b'{"jsonrpc":"2.0","id":1}'), BadResponse),
        (answering(body=b'{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"x"}}'), BadResponse),
        (answering(body=b"x" * 20_000), BadResponse),
        (in_chunks, BadResponse),
        (of_another_request, BadResponse),
        (elsewhere, BadResponse),
        (answering(status=413), LimitExceeded),
    ],
)
async def test_an_invalid_response_raises_the_error_of_its_kind(host, handler, error):
    async with RpcClient(host.serve(handler), token="t", max_response_bytes=10_000) as client:
        with pytest.raises(error, match="redirects are not followed" if handler is elsewhere else None):
            await client.call("evaluate", {})


async def test_an_example_has_the_lower_limit_of_the_servers_and_the_runs(server):
    server.limits["example_timeout_s"] = 2.0
    for given, limit_s in ((None, 2.0), (1.0, 1.0), (5.0, 2.0)):
        async with RpcClient(server.url, example_timeout_s=given) as client:
            await client.discover()
            assert client.example_limit_s == limit_s


async def test_a_call_waits_as_long_as_all_examples_of_its_batch_may_take(server, monkeypatch):
    monkeypatch.setattr(calls, "QUEUE_ALLOWANCE_S", 0.0)
    server.limits["example_timeout_s"] = 0.02
    server.evaluate_one = lambda *_: asyncio.sleep(30)
    ids = [str(number) for number in range(10)]
    params = {"candidate": SEED, "batch": [{"id": each, "data": 1} for each in ids], "capture_traces": False}
    async with RpcClient(server.url, wait_s=0.05) as client:
        await client.discover()
        started = time.monotonic()
        with pytest.raises(ConnectionLost):
            await client.send(Call("evaluate", params, Reply, "a batch", rows=ids))
    assert time.monotonic() - started >= 10 * 0.02


async def test_a_call_that_may_have_run_is_not_sent_again_to_another_process(server, network):
    async with RpcClient(network.url) as client:
        await client.discover()
        server.instance_id = "second"
        network.faults.append("cut")
        with pytest.raises(InstanceChanged) as caught:
            await client.evaluate(SEED, [EXAMPLE], call_id="c1")
    assert caught.value.sent
    assert len(server.called("evaluate")) == 1


async def test_a_refused_host_is_no_wrong_token(server):
    server.refusals.append(Unauthorized("the Host is not allowed", host="x"))
    async with RpcClient(server.url) as client:
        with pytest.raises(Unauthorized, match="the Host is not allowed"):
            await client.evaluate(SEED, [EXAMPLE])
