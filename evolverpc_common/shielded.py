"""Complete work that must not be left half done: a cancelled task waits for its end first."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
logger = logging.getLogger(__name__)


async def run_shielded(work: Callable[..., T], *arguments: object) -> T:
    """Return what blocking work returns or raises, run in a thread; see `await_shielded`."""
    return await await_shielded(asyncio.to_thread(work, *arguments))


async def await_shielded(work: Awaitable[T]) -> T:
    """Return what the work returns or raises.

    Raises:
        CancelledError: the task was cancelled; the work has ended by then, with any outcome.
    """
    running = asyncio.ensure_future(work)
    cancelled = False
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            cancelled = True
    if not cancelled:
        return running.result()
    if not running.cancelled() and (error := running.exception()) is not None:
        logger.warning("what was to be ended although it was cancelled has failed: %s: %s", type(error).__name__, error)
    raise asyncio.CancelledError


async def finished_before(ended: "asyncio.Future[Any]", work: Coroutine[Any, Any, T]) -> asyncio.Task[T] | None:
    """Run the work until it or `ended` is done; return its finished task, or None if `ended` came first."""
    running = asyncio.create_task(work)
    running.add_done_callback(lambda done: done.cancelled() or done.exception())  # retrieved, even if no caller gets it
    try:
        await asyncio.wait({running, ended}, return_when=asyncio.FIRST_COMPLETED)
        return running if running.done() else None
    finally:
        running.cancel()
        await await_shielded(asyncio.wait([running]))
