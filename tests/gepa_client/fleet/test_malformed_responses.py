"""Responses that no server made: those of a proxy in between, and connections that are not trusted."""

import pytest
from aiohttp import web

from gepa_client.errors import BadResponse, Refused
from tests.gepa_client.fleet.conftest import Ledger, ask, begin, results
from tests.support.waiting import eventually

NONSENSE = {"results": "a login page"}


def url_of(server):
    return server.url.removesuffix("/rpc")


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


async def test_an_answer_that_breaks_the_contract_is_asked_for_elsewhere(cluster, opened, watch):
    bad, good = cluster.start(), cluster.start()
    async with opened(bad, good) as fleet:
        bad.replies["evaluate"] = lambda _: NONSENSE
        ledger = Ledger()
        await results(begin(fleet, "a", ledger))
        assert ledger.outcomes == ["error", "ok"]
        assert "does not fit EvaluateResult" in watch.of("resting")[0].detail


@pytest.mark.parametrize("error", [BadResponse("not JSON"), Refused("no trusted connection")])
async def test_an_only_endpoints_junk_is_raised_as_it_came(cluster, opened, watch, error):
    async with opened(cluster.start()) as fleet:

        async def send(_client, _call_id):
            raise error

        ledger = Ledger()
        with pytest.raises(type(error)) as caught:
            await ask(fleet, "x", send, ledger)
        assert caught.value is error
        assert ledger.outcomes == ["error"]
        assert not watch.of("resting")
        assert fleet.in_flight == 0
