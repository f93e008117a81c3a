"""Responses that no server made: those of a proxy in between, and connections that are not trusted."""

import asyncio

import pytest
from aiohttp import web

from gepa_client.errors import BadResponse, Interrupted, Refused
from gepa_client.fleet import Pin, membership
from gepa_client.transport.calls import Reply
from tests.gepa_client.fleet.conftest import Ledger, ask, begin, results, until
from tests.gepa_client.scripted_server import ok

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
        await until(lambda: watch.of("back"))


async def test_an_answer_that_breaks_the_contract_is_asked_for_elsewhere(cluster, opened, watch):
    bad, good = cluster.start(), cluster.start()
    async with opened(bad, good) as fleet:
        bad.replies["evaluate"] = lambda _: NONSENSE
        ledger = Ledger()
        await results(begin(fleet, "a", ledger))
        assert ledger.outcomes == ["error", "ok"]
        assert "does not fit EvaluateResult" in watch.of("resting")[0].detail


async def test_an_untrusted_connection_does_not_end_a_run_that_has_another_endpoint(cluster, opened, watch):
    untrusted, other = cluster.start(), cluster.start()
    async with opened(untrusted, other) as fleet:

        async def send(client, _call_id):
            if client.url == untrusted.url:
                raise Refused("no trusted connection")
            return Reply("done")

        ledger = Ledger()
        assert await asyncio.wait_for(ask(fleet, "x", send, ledger), 10) == "done"
        assert ledger.outcomes == ["error", "ok"]
        assert watch.of("resting")[0].detail == "no trusted connection"


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


async def test_junk_from_every_endpoint_is_an_error_once_each_was_tried(cluster, opened):
    servers = [cluster.start() for _ in range(3)]
    async with opened(*servers, max_attempts=2) as fleet:
        for server in servers:
            server.replies["evaluate"] = lambda _: NONSENSE
        ledger = Ledger()
        with pytest.raises(BadResponse):
            await asyncio.wait_for(begin(fleet, "a", ledger), 10)
        assert {url for url, _, _ in ledger.sent_to} == {url_of(server) for server in servers}
        assert ledger.outcomes == ["error"] * 3


async def test_junk_from_all_endpoints_at_one_moment_costs_nothing(cluster, opened):
    servers = [cluster.start(2) for _ in range(2)]
    async with opened(*servers) as fleet:
        meeting = asyncio.Barrier(4)
        met = set()

        def sending(name):
            async def send(_client, _call_id):
                if name not in met:
                    met.add(name)
                    await meeting.wait()
                    raise BadResponse("the proxy is being restarted")
                return Reply(name)

            return send

        calls = [asyncio.create_task(ask(fleet, name, sending(name), Ledger())) for name in "abcd"]
        assert await results(*calls) == list("abcd")


async def test_a_call_that_meets_junk_again_and_again_while_another_endpoint_is_away_pauses(cluster, opened):
    bad, away = cluster.start(), cluster.start()
    async with opened(bad, away, max_attempts=3) as fleet:
        cluster.kill(away)
        bad.replies["evaluate"] = lambda _: NONSENSE
        with pytest.raises(Interrupted, match=r"no result after 3 attempts; last error: .*EvaluateResult") as caught:
            await asyncio.wait_for(begin(fleet, "a", pin=Pin(away.instance_id)), 10)
        assert caught.value.status == "paused"


async def test_a_minibatch_leaves_an_endpoint_that_only_a_proxy_answers_for(cluster, opened, monkeypatch):
    monkeypatch.setattr(membership, "PATIENCE_S", 0.1)
    home, other = cluster.start(1, held=True), cluster.start(4)
    async with opened(home, other) as fleet:
        pin = Pin(home.instance_id)
        tasks = [begin(fleet, f"{number}", pin=pin, trace=True) for number in range(5)]
        await until(lambda: home._running == 1 and fleet._membership.slots.waiting == 4)
        home.evaluate_one = lambda *_: ok()
        put_in_front(cluster, home)
        await results(*tasks)
        assert pin.instance == other.instance_id
        assert sum(other.runs.values()) == 5
