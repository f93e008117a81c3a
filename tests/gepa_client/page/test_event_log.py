"""The log of a run's events wakes those who wait only for news."""

import asyncio

from gepa_client.page.event_log import EventLog
from gepa_client.page.moment_events import StoreTrouble


async def test_who_waits_is_woken_once_for_what_was_added() -> None:
    log, woken = EventLog(), asyncio.Event()
    stop = log.listen(woken)
    log.published()
    await asyncio.sleep(0)
    assert not woken.is_set(), "nothing was added"
    log.add(StoreTrouble(problem="away", gone=False))
    log.published()
    await asyncio.wait_for(woken.wait(), 10)
    woken.clear()
    log.add(StoreTrouble(problem="away", gone=False))
    log.published()
    await asyncio.sleep(0)
    assert not woken.is_set(), "what was added repeats what is there"
    stop()
