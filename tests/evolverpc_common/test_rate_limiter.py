"""No more operations start in a period than a limit allows, in order of arrival."""

import asyncio

import pytest

from evolverpc_common.rate_limiter import RateExceeded, RateLimiter


async def test_waits_end_in_order_of_arrival_and_within_the_limit() -> None:
    limiter, order = RateLimiter(3, seconds=0.05), []

    async def call(number: int) -> None:
        await limiter.wait()
        order.append(number)

    loop = asyncio.get_running_loop()
    started = loop.time()
    await asyncio.gather(*map(call, range(9)))
    assert order == list(range(9))
    assert loop.time() - started >= 0.1  # three groups of three, one period apart


async def test_a_start_that_may_not_happen_in_time_is_refused() -> None:
    clock = [0.0]
    limiter = RateLimiter(2, clock=lambda: clock[0])
    await limiter.wait(30.0)
    clock[0] = 10.0
    await limiter.wait(30.0)
    with pytest.raises(RateExceeded) as refused:
        await limiter.wait(0.0)
    assert refused.value.retry_after_s == pytest.approx(50)
    clock[0] = 60.0
    await limiter.wait(30.0)


async def test_a_cancelled_wait_uses_up_no_start() -> None:
    limiter = RateLimiter(1, seconds=0.05)
    await limiter.wait(0.08)
    cancelled = asyncio.create_task(limiter.wait(0.08))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    await asyncio.wait_for(limiter.wait(0.08), 30)  # behind the cancelled one it would wait two periods: too long


def test_reserved_starts_are_a_period_apart_and_unused_ones_are_lost() -> None:
    clock = [100.0]
    limiter = RateLimiter(1, seconds=5.0, clock=lambda: clock[0])
    assert [limiter.reserve() for _ in range(3)] == [0.0, 5.0, 10.0]
    clock[0] = 200.0
    assert [limiter.reserve() for _ in range(2)] == [0.0, 5.0]
