"""Responses that no server made: those of a proxy in between, and connections that are not trusted."""

import pytest
from aiohttp import web

from gepa_client.errors import BadResponse, Refused
from protocol.errors import ProgramFailed, UnknownCandidate
from tests.gepa_client.fleet.conftest import Ledger, ask, begin, results, url_of
from tests.support.waiting import eventually

UNSCORED = {"results": [{"status": "ok", "score": None, "seconds": 0.0}]}


def put_in_front(cluster, server, status=200):
    """A proxy that answers everything itself takes the server's place."""

    async def speak(_request):
        return web.Response(status=status, text="<html>Please log in</html>", headers={"Location": "/login"})

    cluster.kill(server)
    cluster.host.serve(speak, port=int(url_of(server).rpartition(":")[2]))


def take_away(cluster, server):
    cluster.kill(server)
    cluster.reopen(server)


@pytest.mark.parametrize("status", [200, 302, 404])
async def test_an_endpoint_behind_a_proxy_that_speaks_for_it_rests_and_comes_back(cluster, opened, watch, status):
    hidden, other = cluster.start(2), cluster.start(2)
    async with opened(hidden, other) as fleet:
        put_in_front(cluster, hidden, status)
        ledgers = [Ledger(f"{number}") for number in range(8)]
        await results(*(begin(fleet, ledger.name, ledger) for ledger in ledgers))
        assert sum(other.runs.values()) == 8
        assert {tuple(ledger.outcomes) for ledger in ledgers} == {("ok",), ("error", "ok")}
        assert [event.url for event in watch.of("resting")] == [url_of(hidden)]
        take_away(cluster, hidden)
        await eventually(lambda: watch.of("back"))


def program_failed(_params):
    raise ProgramFailed(stage="start")


@pytest.mark.parametrize(
    ("evaluate", "shown"),
    [
        (lambda _: UNSCORED, "does not fit EvaluateResult"),
        (lambda _: {"results": []}, "0 results for 1"),
        (program_failed, "ProgramFailed: Program failed"),
    ],
)
async def test_what_an_endpoint_cannot_answer_is_asked_for_elsewhere(cluster, opened, watch, evaluate, shown):
    bad, good = cluster.start(), cluster.start()
    async with opened(bad, good) as fleet:
        bad.replies["evaluate"] = evaluate
        ledger = Ledger()
        await results(begin(fleet, "a", ledger))
        assert (ledger.outcomes, good.runs) == (["error", "ok"], {"a": 1})
        assert shown in watch.of("resting")[0].detail


@pytest.mark.parametrize(
    ("servers", "error"),
    [(1, BadResponse("not JSON")), (1, Refused("no trusted connection")), (2, UnknownCandidate(unknown=["x"]))],
)
async def test_what_no_repetition_and_no_other_endpoint_can_change_is_raised_as_it_came(
    cluster, opened, watch, servers, error
):
    async with opened(*(cluster.start() for _ in range(servers))) as fleet:

        async def send(_client, _call_id):
            raise error

        ledger = Ledger()
        with pytest.raises(type(error)) as caught:
            await ask(fleet, "x", send, ledger)
        assert caught.value is error
        assert ledger.outcomes == ["error"]
        assert not watch.of("resting")
        assert fleet.in_flight == 0
