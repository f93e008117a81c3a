"""Calls per minute: in order of arrival, and whoever would wait too long is told when to come again."""

import asyncio

import pytest

from sandbox_runtime.gateway.rate import Rate, TooFast


async def test_turns_come_in_order_of_arrival_and_no_more_than_allowed_in_any_span() -> None:
    rate, order = Rate(3, 60, seconds=0.05), []

    async def call(number: int) -> None:
        await rate.turn()
        order.append(number)

    loop = asyncio.get_running_loop()
    started = loop.time()
    await asyncio.gather(*map(call, range(9)))
    assert order == list(range(9))
    assert loop.time() - started >= 0.1  # three times three, a span apart


async def test_who_would_wait_too_long_is_told_so_at_once() -> None:
    clock = [0.0]
    rate = Rate(2, 30.0, clock=lambda: clock[0])
    await rate.turn()
    clock[0] = 10.0
    await rate.turn()
    with pytest.raises(TooFast) as told:
        await rate.turn()
    assert told.value.retry_after_s == pytest.approx(50)
    clock[0] = 60.0
    await rate.turn()


async def test_who_gives_up_waiting_takes_nobodys_turn() -> None:
    rate = Rate(1, 0.08, seconds=0.05)
    await rate.turn()
    given_up = asyncio.create_task(rate.turn())
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.wait([given_up])
    await asyncio.wait_for(rate.turn(), 30)  # behind the one given up it would wait for two spans: too long


async def test_without_a_bound_nobody_waits() -> None:
    rate = Rate(None, 0)
    for _ in range(1000):
        await rate.turn()
