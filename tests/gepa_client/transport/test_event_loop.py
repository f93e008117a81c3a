import asyncio
import concurrent.futures
import threading

import pytest

from gepa_client.transport.event_loop import EventLoopThread


def test_closing_cancels_what_runs_and_ends_the_thread():
    bridge = EventLoopThread()
    running, ended = threading.Event(), threading.Event()

    async def forever():
        running.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    def wait():
        with pytest.raises(concurrent.futures.CancelledError):
            bridge.run(forever())

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    assert running.wait(5)
    bridge.close()
    bridge.close()
    waiter.join(5)
    assert ended.is_set()
    assert not bridge._thread.is_alive()
