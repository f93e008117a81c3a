import asyncio

import pytest

from gepa_client.fleet import Address, Pin
from gepa_client.fleet.endpoint import Endpoint
from gepa_client.fleet.slots import Slots
from tests.gepa_client.fleet.conftest import WAIT_S, begin, results
from tests.support.waiting import eventually


async def test_calls_spread_by_the_share_of_slots_in_use(cluster, opened):
    small, large = cluster.start(2, held=True), cluster.start(8, held=True)
    async with opened(small, large) as fleet:
        tasks = [begin(fleet, f"{number}") for number in range(5)]
        await eventually(lambda: small._running + large._running == 5)
        assert small._running == 1
        cluster.let_go(small)
        cluster.let_go(large)
        await results(*tasks)


@pytest.mark.parametrize("pinned", [(), (1, 4), (0, 2, 3, 5)])
async def test_calls_are_served_in_the_order_of_their_requests_pinned_or_not(cluster, opened, pinned):
    server = cluster.start(1, held=True)
    async with opened(server) as fleet:
        pin = Pin(server.instance_id)
        first = begin(fleet, "first")
        await eventually(lambda: server._running == 1)
        tasks = [begin(fleet, f"{number}", pin=pin if number in pinned else None) for number in range(6)]
        await asyncio.sleep(0)
        cluster.let_go(server)
        await results(first, *tasks)
        assert [params["batch"][0]["id"] for params in server.called("evaluate")] == ["first", *"012345"]


@pytest.mark.parametrize("cancelled", [True, False])
async def test_a_slot_given_to_a_call_that_is_cancelled_or_to_an_endpoint_that_rests_at_that_moment_is_free(cancelled):
    slots, endpoint = Slots(), Endpoint.at(Address("http://127.0.0.1:9", token="t"))
    endpoint.slots = 1
    slots.start(endpoint)
    await slots.take(slots.ticket())
    waiting = asyncio.ensure_future(slots.take(slots.ticket()))
    await asyncio.sleep(0)
    slots.release(endpoint)
    if cancelled:
        waiting.cancel()
    else:
        slots.stop(endpoint)
    await asyncio.wait([waiting])
    assert cancelled or waiting.result() is None
    assert endpoint.in_flight == 0


async def test_a_call_that_avoids_an_endpoint_has_its_slot_once_no_other_endpoint_is_left():
    slots = Slots()
    avoided, other = (Endpoint.at(Address(f"http://127.0.0.1:{port}", token="t")) for port in (8, 9))
    for endpoint in (avoided, other):
        endpoint.slots = 1
        slots.start(endpoint)
    await slots.take(slots.ticket(), at=other)
    ticket = slots.ticket()
    waiting = asyncio.ensure_future(slots.take(ticket, avoid=avoided))
    await asyncio.sleep(0)
    assert not waiting.done()
    slots.stop(other)
    assert await asyncio.wait_for(waiting, WAIT_S) is None, "it is to decide anew"
    assert await slots.take(ticket, avoid=avoided) is avoided
