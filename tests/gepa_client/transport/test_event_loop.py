import asyncio
import concurrent.futures
import threading

import pytest

from gepa_client.errors import Interrupted
from gepa_client.transport.event_loop import CancelToken, EventLoopThread, GroupTask, run_group


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


async def test_tasks_start_in_order_at_most_so_many_at_once_and_none_after_a_failure():
    begun, go = [], asyncio.Event()

    def task(number):
        async def run(own):
            own.begun = True
            begun.append(number)
            if number == 2:
                raise ValueError("no")
            await go.wait()
            if number == 1:
                raise Interrupted("paused", "the store is away")

        return GroupTask(run)

    running = asyncio.create_task(run_group([task(number) for number in range(6)], width=2))
    for _ in range(5):
        await asyncio.sleep(0)
    assert begun == [0, 1]
    go.set()
    with pytest.raises(Interrupted, match="the store is away"):
        await running
    assert begun == [0, 1, 2]


def test_the_first_reason_to_stop_counts_and_reaches_who_listens_later_too():
    token, received = CancelToken(), []
    reasons = [Interrupted("cancelled", "by hand"), Interrupted("paused", "the store is away")]
    token.add_listener(received.append)
    for reason in reasons:
        token.cancel(reason)
    token.add_listener(received.append)
    assert received == [reasons[0]] * 2
    with pytest.raises(Interrupted, match="by hand"):
        token.check()
