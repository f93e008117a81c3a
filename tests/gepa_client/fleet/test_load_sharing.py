import asyncio

import pytest

from gepa_client.fleet import Pin
from gepa_client.transport.calls import Reply
from tests.gepa_client.fleet.conftest import Ledger, ask, begin, results, until


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
