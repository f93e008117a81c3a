"""Async functions: one process, one loop, many examples at once."""

import asyncio
import time


async def test_async_functions_share_one_process_and_run_at_once(opened):
    async with opened("waits.py", workers=None, concurrency=50) as running:
        assert running.program.limits.max_concurrency == 50
        started = time.monotonic()
        results = await running.evaluate(*[{"seconds": 0.5}] * 50)
        assert time.monotonic() - started < 12.5  # of 25 s, one after the other
        assert len({result["output"]["pid"] for result in results}) == 1
        assert max(result["output"]["most"] for result in results) == 50


async def test_the_settings_bound_how_many_run_at_once_on_the_loop(opened):
    async with opened("waits.py", workers=1, concurrency=3) as running:
        results = await running.evaluate(*[{"seconds": 0.05}] * 12)
        assert max(result["output"]["most"] for result in results) == 3


async def test_an_async_example_over_its_time_ends_alone(opened):
    async with opened("waits.py", workers=1, concurrency=16, example_timeout_s=0.5) as running:
        pid = (await running.one({"do": "pid"}))["output"]
        slow, fast = await running.evaluate({"seconds": 60}, {"seconds": 0.1})
        assert slow["status"] == "timeout"
        assert fast["status"] == "ok"
        assert (await running.one({"do": "pid"}))["output"] == pid


async def test_an_async_example_that_holds_the_loop_is_killed_and_its_neighbours_run_again(opened):
    async with opened("waits.py", workers=1, concurrency=16, example_timeout_s=1.0) as running:
        neighbour = asyncio.create_task(running.one({"seconds": 0.6}))
        await asyncio.sleep(0)
        assert (await running.one({"do": "hold"}))["status"] == "timeout"
        assert (await neighbour)["status"] in ("ok", "timeout")
        assert (await running.one({"seconds": 0.1}))["status"] == "ok"


async def test_a_death_in_the_shared_process_is_blamed_on_the_one_that_dies_again(opened):
    async with opened("waits.py", workers=1, concurrency=16) as running:
        rows = [{"do": "exit"} if number == 3 else {"seconds": 0.3} for number in range(12)]
        results = await running.evaluate(*rows)
        assert [result["status"] for result in results] == [
            "program_error" if number == 3 else "ok" for number in range(12)
        ]
        assert results[3]["error"]["type"] == "process_died"
        assert "status 5" in results[3]["error"]["message"]


async def test_failures_of_async_functions_are_theirs_alone(opened):
    async with opened("waits.py", workers=1, concurrency=16) as running:
        raised, stray, good = await running.evaluate({"do": "raise"}, {"do": "cancel_myself"}, {})
        assert raised["error"]["type"] == "ValueError"
        assert "waits.py" in raised["error"]["traceback"]
        assert stray["error"]["type"] == "CancelledError"
        assert good["status"] == "ok"
