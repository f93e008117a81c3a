"""Async functions: one process, one loop, many examples at once."""

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


async def test_failures_of_async_functions_are_theirs_alone(opened):
    async with opened("waits.py", workers=1, concurrency=16) as running:
        raised, stray, good = await running.evaluate({"do": "raise"}, {"do": "cancel_myself"}, {})
        assert raised["error"]["type"] == "ValueError"
        assert "waits.py" in raised["error"]["traceback"]
        assert stray["error"]["type"] == "CancelledError"
        assert good["status"] == "ok"
