"""Async functions: one process, one loop, many examples at once."""


async def test_async_functions_share_one_process_and_as_many_run_at_once_as_the_settings_state(opened):
    async with opened("waits.py", workers=None, concurrency=3) as running:
        assert running.program.limits.max_concurrency == 3
        results = await running.evaluate(*[{"seconds": 0.05}] * 12)
    assert len({result["output"]["pid"] for result in results}) == 1
    assert max(result["output"]["most"] for result in results) == 3


async def test_failures_of_async_functions_are_theirs_alone(opened):
    async with opened("waits.py", workers=1, concurrency=16) as running:
        raised, stray, good = await running.evaluate({"do": "raise"}, {"do": "cancel_myself"}, {})
        assert raised["error"]["type"] == "ValueError"
        assert "waits.py" in raised["error"]["traceback"]
        assert stray["error"]["type"] == "CancelledError"
        assert good["status"] == "ok"
