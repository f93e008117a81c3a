"""What the API does beside requests: write counts of requests, and remove old idempotent responses."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable

from starlette.concurrency import run_in_threadpool

from gepa_service.api.idempotency import remove_old
from gepa_service.api.request_counts import RequestCounts
from gepa_service.records.store import RecordError, RecordStore

_log = logging.getLogger(__name__)

COUNTS_S = 10.0
REMOVAL_S = 3600.0


@contextlib.asynccontextmanager
async def housekeeping(records: RecordStore, counts: RequestCounts) -> AsyncIterator[None]:
    """Do it while the block runs; counts are written once more at its end."""
    tasks = [
        asyncio.create_task(_repeat(lambda: counts.write(records), COUNTS_S)),
        asyncio.create_task(_repeat(lambda: remove_old(records), REMOVAL_S)),
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await _done(lambda: counts.write(records))


async def _repeat(work: Callable[[], object], seconds: float) -> None:
    while True:
        await _done(work)
        await asyncio.sleep(seconds)


async def _done(work: Callable[[], object]) -> None:
    """Do it; a database that is away is met again the next time."""
    try:
        await run_in_threadpool(work)
    except RecordError as error:
        _log.warning("not done now: %s", error)
