"""Work that is never left half done: whoever is cancelled meanwhile waits for its end first."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
logger = logging.getLogger(__name__)


async def to_the_end(work: Callable[..., T], *arguments: object) -> T:
    """What blocking work returns or raises, run in a thread; otherwise as `all_of`."""
    return await all_of(asyncio.to_thread(work, *arguments))


async def all_of(work: Coroutine[Any, Any, T]) -> T:
    """What the coroutine returns or raises.

    Raises:
        CancelledError: somebody cancelled; the work has ended by then, whatever came of it.
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
