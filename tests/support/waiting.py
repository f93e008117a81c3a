"""Waiting for what another process, thread or task does."""

import asyncio
import time
from collections.abc import Callable
from typing import Any


def until(condition: Callable[[], Any], seconds: float = 100.0) -> Any:
    """Return the condition's first true value."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"still false after {seconds:g} s"
        time.sleep(0.01)
    return value


async def eventually(condition: Callable[[], Any], seconds: float = 20.0) -> Any:
    """Return the same, looked for in a thread, so that the event loop continues."""
    return await asyncio.to_thread(until, condition, seconds)
