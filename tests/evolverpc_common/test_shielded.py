"""Work that is done to its end although whoever asked for it was cancelled."""

import asyncio

import pytest

from evolverpc_common.shielded import await_shielded


async def test_a_failure_that_nobody_waits_for_any_more_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        await may_end.wait()
        raise ValueError("the disk is full")

    task = asyncio.create_task(await_shielded(work()))
    await begun.wait()
    task.cancel()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "ValueError: the disk is full" in caplog.text
