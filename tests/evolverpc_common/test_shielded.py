"""Shielded work completes although its caller was cancelled."""

import asyncio

import pytest

from evolverpc_common.shielded import await_shielded


async def test_a_failure_without_a_waiting_caller_is_logged(caplog: pytest.LogCaptureFixture) -> None:
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
