"""A group of jobs: after a failure no job starts, and running jobs finish."""

import asyncio

import pytest

from gepa_client.transport.event_loop import GroupTask, run_group


class Log:
    """What began, ended and was cancelled."""

    def __init__(self):
        self.begun, self.ended, self.cancelled = [], [], []

    def job(self, name, *, ends=None, begins=True, error=None, before=None):
        """Wait for `ends`; report first that it begins unless it only waits for a place."""

        async def run(job):
            try:
                if before is not None:
                    await before.wait()
                if begins:
                    job.begun = True
                    self.begun.append(name)
                if ends is not None:
                    await ends.wait()
                if error is not None:
                    raise error
            except asyncio.CancelledError:
                self.cancelled.append(name)
                raise
            self.ended.append(name)

        return GroupTask(run)


async def test_jobs_start_in_order_and_at_most_so_many_at_once():
    log, go = Log(), asyncio.Event()
    running = asyncio.create_task(run_group([log.job(number, ends=go) for number in range(5)], width=2))
    for _ in range(5):
        await asyncio.sleep(0)
    assert log.begun == [0, 1]
    go.set()
    await running
    assert log.begun == [0, 1, 2, 3, 4]
    assert sorted(log.ended) == [0, 1, 2, 3, 4]


async def test_after_a_failure_those_under_way_end_and_those_that_wait_are_cancelled():
    log, go, never = Log(), asyncio.Event(), asyncio.Event()
    jobs = [
        log.job("under way", ends=go),
        log.job("waits for a place", before=never),
        log.job("fails", error=ValueError("no")),
        log.job("never started"),
    ]
    running = asyncio.create_task(run_group(jobs, width=3))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not running.done()  # it waits for what is under way
    assert log.cancelled == ["waits for a place"]
    go.set()
    with pytest.raises(ValueError, match="no"):
        await running
    assert log.ended == ["under way"]
    assert log.begun == ["under way", "fails"]


async def test_cancelling_it_cancels_all_of_them_even_those_under_way():
    log, never = Log(), asyncio.Event()
    running = asyncio.create_task(run_group([log.job(number, ends=never) for number in range(3)], width=2))
    for _ in range(5):
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert log.cancelled == [0, 1]
    assert log.ended == []
