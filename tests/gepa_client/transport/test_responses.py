import orjson
import pytest
from aiohttp import web

from gepa_client.errors import BadResponse
from gepa_client.transport.responses import HttpResponse, example_results, result_of
from gepa_client.transport.rpc_client import RpcClient
from protocol import ScoreResult
from protocol.errors import Overloaded

SEED = {"system": "s"}
COST = {"cost_usd": 0.25, "input_tokens": 3}


def nested(levels, opened=b"[", closed=b"]", inside=b"1"):
    return opened * levels + inside + closed * levels


def result(output=b"null", score=b"1", more=b""):
    """A result whose output, of n levels, makes it n + 1 levels deep."""
    return (
        b'{"status":"ok","score":%b,"output":%b,"seconds":2,"usage":{"cost_usd":0.25,"input_tokens":3},'
        b'"metric_calls":4%b}' % (score, output, more)
    )


def message(inner, request_id=1):
    return b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (request_id, inner)


def results(*given):
    return b'{"results":[%b]}' % b",".join(given)


def read(inner):
    return result_of(HttpResponse(200, "", message(inner)), 1)


@pytest.fixture
def client(host):
    """A client of a server that answers every call with these bytes."""

    def of(inner):
        async def handler(request):
            request_id = orjson.loads(await request.read())["id"]
            return web.Response(body=message(inner, request_id), content_type="application/json")

        return RpcClient(host.serve(handler), token="t")

    return of


def of_depth(levels):
    return (
        nested(levels),
        nested(levels, b'{"a":', b"}"),
        nested(levels, b'[0,"[[{",', b',"]\\"]"]'),
        nested(levels, inside=b'"' + b"[" * 2000 + b'"'),
    )


@pytest.mark.parametrize("output", of_depth(199))
def test_a_result_as_deep_as_may_be_is_taken_as_it_is(output):
    taken = read(results(result(output)))
    assert taken["results"][0]["output"] == orjson.loads(output)
    assert orjson.loads(orjson.dumps([taken])) == [taken]


@pytest.mark.parametrize("levels", [220, 1015, 1030, 20_000])
def test_an_answer_that_nests_deeper_than_the_contract_allows_is_refused(levels):
    for output in of_depth(levels):
        with pytest.raises(BadResponse, match="nests deeper than 220 levels"):
            read(results(result(output)))


@pytest.mark.parametrize("method", ["evaluate", "score"])
@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        (result(score=b"1e200"), "ScoreTooLarge", "its score is 1e+200"),
        (result(score=b"-1e16"), "ScoreTooLarge", "its score is -1e+16"),
        (result(more=b',"objective_scores":{"fast":1,"good":1e300}'), "ScoreTooLarge", "its objective score 'good' is"),
    ],
)
async def test_an_extreme_result_is_a_failure_of_its_example_that_keeps_its_cost(client, method, given, kind, message):
    batch = [{"id": "a", "data": 1}, {"id": "b", "data": 2}]
    async with client(results(given, result())) as open_client:
        if method == "evaluate":
            answer = await open_client.evaluate(SEED, batch)
        else:
            scored = await open_client.call("score", {"batch": batch, "results": []})
            answer = {"results": example_results(ScoreResult, scored, len(batch))}
    failed, fine = answer["results"]
    assert (failed["status"], failed["score"], failed["error"]["type"]) == ("program_error", None, kind)
    assert message in failed["error"]["message"]
    assert "objective_scores" not in failed
    assert (failed["usage"], failed["seconds"], failed["metric_calls"]) == (COST, 2, 4)
    assert fine["score"] == 1


@pytest.mark.parametrize(
    "amount",
    [
        b'"seconds":1e16',
        b'"seconds":1,"usage":{"cost_usd":1e200}',
        b'"seconds":1,"usage":{"of_its_own":1e308}',
        b'"seconds":1,"usage":{"models":{"m":{"calls":1,"cost_usd":1e200}}}',
        b'"seconds":1,"metric_calls":9007199254740993',
    ],
)
async def test_an_amount_that_cannot_be_is_a_bad_response(client, amount):
    async with client(results(b'{"status":"ok","score":1,%b}' % amount)) as open_client:
        with pytest.raises(BadResponse, match=r"the limit is 1e\+15"):
            await open_client.evaluate(SEED, [{"id": "a", "data": 1}])


@pytest.mark.parametrize(("after", "pause"), [("7", 7.0), ("²", 1.0), ("٣", 1.0), ("", 1.0), ("soon", 1.0)])
def test_a_pause_asked_for_is_read_as_digits_or_not_at_all(after, pause):
    with pytest.raises(Overloaded) as caught:
        result_of(HttpResponse(429, after, b""), 1)
    assert caught.value.details == {"retry_after_s": pause}
