"""A bounded pool of named resources: created once, shared, the least recently used closed first."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest

from rpc_server.worktrees.instances import LruPool, PoolClosed

WAIT_S = 10


class Workshop:
    """Creates and closes texts; `gate` delays every creation, `hold` every close.

    `asked`: names that a caller has begun to wait for. `ending`: names that are being closed.
    """

    def __init__(self, bound: int) -> None:
        self.log: list[str] = []
        self.asked: list[str] = []
        self.ending: list[str] = []
        self.fails: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.hold = asyncio.Event()
        self.hold.set()
        self.pool = LruPool(self._make, self._unmake, bound)

    async def _make(self, name: str) -> str:
        self.log.append(f"+{name}")
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.log.append(f"x{name}")
            raise
        if self.fails is not None:
            raise self.fails
        return name

    async def _unmake(self, thing: str) -> None:
        self.ending.append(thing)
        await self.hold.wait()
        self.log.append(f"-{thing}")

    async def use(self, *names: str) -> None:
        for name in names:
            self.asked.append(name)  # nothing else runs before it waits, or has it
            async with self.pool.acquire(name) as thing:
                assert thing == name

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():  # noqa: ASYNC110  # many of them, none worth an event
                await asyncio.sleep(0)


async def test_a_resource_is_reused_and_the_least_recently_used_makes_room() -> None:
    shop = Workshop(2)
    await shop.use("a", "b", "a", "c", "a", "b")
    assert shop.log == ["+a", "+b", "-b", "+c", "-c", "+b"]


async def test_many_who_want_one_thing_have_it_made_once() -> None:
    shop = Workshop(1)
    await asyncio.gather(*(shop.use("a") for _ in range(20)))
    assert shop.log == ["+a"]


async def test_a_resource_counts_until_it_is_closed() -> None:
    shop = Workshop(1)
    await shop.use("a")
    shop.hold.clear()
    other = asyncio.ensure_future(shop.use("b"))
    await shop.until(lambda: "b" in shop.asked)
    shop.hold.set()
    await asyncio.wait_for(other, WAIT_S)
    assert shop.log == ["+a", "-a", "+b"]


async def test_a_resource_requested_while_it_closes_is_created_again() -> None:
    shop = Workshop(1)
    await shop.use("a")
    shop.hold.clear()
    users = [asyncio.ensure_future(shop.use(name)) for name in "ba"]
    await shop.until(lambda: shop.asked == ["a", "b", "a"])
    shop.hold.set()
    await asyncio.wait_for(asyncio.gather(*users), WAIT_S)
    assert shop.log[:3] == ["+a", "-a", "+b"]
    assert shop.log[3:] == ["-b", "+a"]


async def test_if_all_are_in_use_a_request_waits_and_nothing_is_evicted() -> None:
    shop = Workshop(2)
    async with AsyncExitStack() as stack:
        for name in "ab":
            await stack.enter_async_context(shop.pool.acquire(name))
        waiting = asyncio.ensure_future(shop.use("c"))
        await shop.until(lambda: "c" in shop.asked)
    await asyncio.wait_for(waiting, WAIT_S)
    assert shop.log == ["+a", "+b", "-b", "+c"]


async def test_a_failure_goes_to_all_who_wait_and_the_next_one_tries_again() -> None:
    shop = Workshop(2)
    shop.fails = ValueError("no")
    outcomes = await asyncio.gather(*(shop.use("a") for _ in range(3)), return_exceptions=True)
    assert outcomes == [shop.fails] * 3
    shop.fails = None
    await shop.use("a")
    assert shop.log == ["+a", "+a"]


async def test_what_goes_wrong_with_a_thing_does_not_unmake_it() -> None:
    shop = Workshop(1)
    with pytest.raises(ValueError, match="the user's"):
        async with shop.pool.acquire("a"):
            raise ValueError("the user's")
    await shop.use("a")
    assert shop.log == ["+a"]


async def test_one_of_two_who_wait_may_leave_and_with_the_last_the_making_ends() -> None:
    shop = Workshop(1)
    shop.gate.clear()
    first, second = (asyncio.ensure_future(shop.use("a")) for _ in range(2))
    await shop.until(lambda: bool(shop.log))
    first.cancel()
    await asyncio.wait([first])
    assert shop.log == ["+a"]
    second.cancel()
    await asyncio.wait([second])
    await shop.until(lambda: "xa" in shop.log)
    shop.gate.set()
    await asyncio.wait_for(shop.use("a", "b"), WAIT_S)
    assert shop.log == ["+a", "xa", "+a", "-a", "+b"]


async def test_one_who_left_while_waiting_for_room_is_forgotten() -> None:
    shop = Workshop(1)
    async with shop.pool.acquire("a"):
        waiting = asyncio.ensure_future(shop.use("b"))
        await shop.until(lambda: "b" in shop.asked)
        waiting.cancel()
        await asyncio.wait([waiting])
    await shop.use("a")
    assert shop.log == ["+a"]


async def test_what_was_made_elsewhere_is_kept_like_any_other() -> None:
    shop = Workshop(2)
    await shop.use("a", "b")
    await shop.pool.add("c", "c")
    await shop.use("b", "c")
    await shop.until(lambda: "-a" in shop.log)
    assert shop.log == ["+a", "+b", "-a"]


async def test_what_was_made_elsewhere_waits_for_the_end_of_what_makes_room() -> None:
    shop = Workshop(1)
    await shop.use("a")
    shop.hold.clear()
    keeping = asyncio.ensure_future(shop.pool.add("b", "b"))
    await shop.until(lambda: shop.ending == ["a"])
    assert not keeping.done()
    shop.hold.set()
    await asyncio.wait_for(keeping, WAIT_S)
    await shop.use("b")
    assert shop.log == ["+a", "-a"]


async def test_what_there_is_already_is_not_kept_twice() -> None:
    shop = Workshop(2)
    await shop.use("a")
    await shop.pool.add("a", "another a")
    assert shop.log == ["+a", "-another a"]


async def test_adding_waits_for_no_user() -> None:
    shop = Workshop(1)
    async with shop.pool.acquire("a"):
        await asyncio.wait_for(shop.pool.add("b", "b"), WAIT_S)
        assert shop.log == ["+a", "-b"]


async def test_closing_the_pool_closes_everything_and_wakes_waiting_tasks() -> None:
    shop = Workshop(2)
    await shop.use("a")
    shop.gate.clear()
    making = asyncio.ensure_future(shop.use("b"))
    await shop.until(lambda: "+b" in shop.log)
    waiting = asyncio.ensure_future(shop.use("c"))
    await asyncio.wait_for(shop.pool.close(), WAIT_S)
    assert [type(one) for one in await asyncio.gather(making, waiting, return_exceptions=True)] == [
        PoolClosed,
        PoolClosed,
    ]
    assert sorted(shop.log) == ["+a", "+b", "-a", "xb"]
    with pytest.raises(PoolClosed):
        await shop.use("a")
    await shop.pool.add("d", "d")
    assert shop.log[-1] == "-d"


async def test_the_bound_holds_for_any_order_of_requests() -> None:
    alive: set[str] = set()
    most = 0

    async def make(name: str) -> str:
        nonlocal most
        assert name not in alive
        alive.add(name)
        most = max(most, len(alive))
        await asyncio.sleep(0)
        return name

    async def unmake(name: str) -> None:
        await asyncio.sleep(0)
        alive.remove(name)

    pool = LruPool(make, unmake, 5)

    async def use(number: int) -> None:
        async with pool.acquire(f"{number * 7 % 13}"):
            await asyncio.sleep(0)

    async with asyncio.timeout(WAIT_S):
        await asyncio.gather(*(use(number) for number in range(500)))
    assert most == 5
    await pool.close()
    assert alive == set()
