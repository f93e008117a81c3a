import asyncio

import pytest

from gepa_client.fleet import Pin
from gepa_client.transport.calls import Reply
from tests.gepa_client.fleet.conftest import Ledger, ask, begin, results, until


async def test_endpoints_share_the_load_and_none_exceeds_its_limit(cluster, opened):
    small, large = cluster.start(2, held=True), cluster.start(4, held=True)
    async with opened(small, large) as fleet:
        tasks = [begin(fleet, f"{number}") for number in range(30)]
        await until(lambda: small._running == 2 and large._running == 4)
        assert fleet.in_flight == 6
        cluster.let_go(small)
        cluster.let_go(large)
        assert len(await results(*tasks)) == 30
        assert (small.most_at_once, large.most_at_once) == (2, 4)
        assert sum(endpoint.done for endpoint in fleet.endpoints) == 30
        assert fleet.in_flight == 0


async def test_the_least_busy_endpoint_comes_first(cluster, opened):
    servers = [cluster.start(8, held=True) for _ in range(3)]
    async with opened(*servers) as fleet:
        tasks = [begin(fleet, f"{number}") for number in range(6)]
        await until(lambda: [server._running for server in servers] == [2, 2, 2])
        for server in servers:
            cluster.let_go(server)
        await results(*tasks)


async def test_a_slow_endpoint_does_not_hold_up_the_other(cluster, opened):
    slow, quick = cluster.start(2, held=True), cluster.start(2)
    async with opened(slow, quick) as fleet:
        tasks = [begin(fleet, f"{number}") for number in range(40)]
        await until(lambda: sum(task.done() for task in tasks) == 38)
        cluster.let_go(slow)
        await results(*tasks)
        assert sum(slow.runs.values()) == 2


@pytest.mark.parametrize("pinned", [(), (1, 4), (0, 2, 3, 5)])
async def test_calls_are_served_in_the_order_of_their_requests_pinned_or_not(cluster, opened, pinned):
    server = cluster.start(1, held=True)
    async with opened(server) as fleet:
        pin = Pin(server.instance_id)
        first = begin(fleet, "first")
        await until(lambda: server._running == 1)
        tasks = [begin(fleet, f"{number}", pin=pin if number in pinned else None) for number in range(6)]
        await asyncio.sleep(0)
        cluster.let_go(server)
        await results(first, *tasks)
        assert [params["batch"][0]["id"] for params in server.called("evaluate")] == ["first", *"012345"]


async def test_calls_for_one_endpoint_are_not_starved_by_those_that_may_go_anywhere(cluster, opened):
    one, other = cluster.start(1, held=True), cluster.start(1)
    async with opened(one, other) as fleet:
        first = begin(fleet, "first", pin=Pin(one.instance_id))
        await until(lambda: one._running == 1)
        pinned = begin(fleet, "pinned", pin=Pin(one.instance_id))
        await asyncio.sleep(0)
        anywhere = [begin(fleet, f"{number}") for number in range(20)]
        cluster.let_go(one)
        await results(first, pinned, *anywhere)
        assert [params["batch"][0]["id"] for params in one.called("evaluate")][:2] == ["first", "pinned"]


async def test_cancelling_who_waits_costs_no_slot(cluster, opened):
    server = cluster.start(1, held=True)
    async with opened(server) as fleet:
        first = begin(fleet, "first")
        await until(lambda: server._running == 1)
        waiting = [begin(fleet, f"{number}") for number in range(3)]
        await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        cluster.let_go(server)
        await results(first, begin(fleet, "last"))
        assert fleet.in_flight == 0
        assert set(server.runs) == {"first", "last"}


async def test_a_slot_granted_to_who_is_cancelled_in_that_moment_goes_to_the_next(cluster, opened):
    async with opened(cluster.start(1)) as fleet:
        release = asyncio.Event()

        async def hold(_client, _call_id):
            await release.wait()
            return Reply(None)

        async def quick(_client, _call_id):
            return Reply("done")

        holder = asyncio.create_task(ask(fleet, "holder", hold, Ledger()))
        await until(lambda: fleet.in_flight == 1)
        unlucky = asyncio.create_task(ask(fleet, "unlucky", quick, Ledger()))
        last = asyncio.create_task(ask(fleet, "last", quick, Ledger()))
        await asyncio.sleep(0)
        holder.add_done_callback(lambda _: unlucky.cancel())  # the slot is its already, and it has not run since
        release.set()
        assert await asyncio.wait_for(last, 5) == "done"
        assert fleet.in_flight == 0


async def test_cancelling_a_call_in_flight_cancels_it_on_the_server(cluster, opened):
    server = cluster.start(1, held=True)
    async with opened(server) as fleet:
        ledger = Ledger("mine")
        task = begin(fleet, "a", ledger)
        await until(lambda: server._running == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert server.cancelled == ["mine/1"]
        assert ledger.outcomes == ["cancelled"]
        assert fleet.in_flight == 0


async def test_nothing_is_sent_when_the_attempt_cannot_be_recorded(cluster, opened):
    async def full(*_, **__):
        raise OSError("disk full")

    server = cluster.start(1)
    async with opened(server) as fleet:
        ledger = Ledger()
        ledger.start = full
        with pytest.raises(OSError, match="disk full"):
            await begin(fleet, "a", ledger)
        assert ledger.outcomes == []
        assert not server.called("evaluate")
        await results(begin(fleet, "b"))


async def test_a_thousand_calls_at_once_fill_every_endpoint_to_its_limit(cluster, opened):
    servers = [cluster.start(64) for _ in range(16)]
    async with opened(*servers) as fleet:
        most = 0

        async def send(_client, _call_id):
            nonlocal most
            most = max(most, fleet.in_flight)
            assert all(endpoint.in_flight <= 64 for endpoint in fleet.endpoints)
            await asyncio.sleep(0.01)
            return Reply(None)

        pins = [Pin() for _ in range(10)]
        tasks = [
            asyncio.create_task(ask(fleet, "x", send, Ledger(), pin=pins[at % 10] if at % 3 == 0 else None))
            for at in range(3000)
        ]
        await results(*tasks)
        assert most == 1024
        assert fleet.in_flight == 0
        assert len(fleet._membership.slots._least_busy) <= 16 * 17
