"""Cancelled evaluations: what ran is stopped, and what waited is not begun."""

import asyncio

from protocol import Example
from tests.support.waiting import eventually


async def cancelled(running, pids, row, count):
    """Start `count` of the row and cancel when all that can run do."""
    batch = [Example(id=str(number), data=row) for number in range(count)]
    seed = running.program.info.seed_candidate
    call = running.program.evaluate(seed, batch, capture_traces=False, on_result=lambda *_: None)
    evaluation = asyncio.create_task(call)
    await eventually(pids)
    evaluation.cancel()
    await asyncio.wait({evaluation}, timeout=5)
    assert evaluation.cancelled()


async def test_async_functions_are_cancelled_in_place(opened, tmp_path):
    begun, stopped = tmp_path / "begun", tmp_path / "stopped"
    async with opened("waits.py", workers=1, concurrency=16) as running:
        pid = (await running.one({"do": "pid"}))["output"]
        row = {"begun": str(begun), "cancelled": str(stopped), "seconds": 60}
        await cancelled(running, begun.exists, row, 3)
        await eventually(stopped.exists)
        assert (await running.one({"do": "pid"}))["output"] == pid


async def test_the_process_of_a_cancelled_example_gets_no_further_one(opened, tmp_path):
    pids = tmp_path / "pids"
    async with opened("behaves.py", workers=1) as running:
        await cancelled(running, pids.exists, {"do": "write_pid_and_sleep", "file": str(pids), "seconds": 60}, 1)
        assert (await running.one({"output": "after"}, seconds=15))["output"] == "after"


async def test_an_abandoned_thread_keeps_running_beside_other_examples(opened, tmp_path):
    pids = tmp_path / "pids"
    async with opened("behaves.py", workers=1, concurrency=2) as running:
        neighbour = asyncio.create_task(running.one({"do": "sleep", "seconds": 0.6}))
        row = {"do": "write_pid_and_sleep", "file": str(pids), "seconds": 60}
        await cancelled(running, pids.exists, row, 1)
        assert (await running.one({"output": "beside"}))["output"] == "beside"
        assert (await neighbour)["output"] == "slept"
        assert (await running.one({"output": "after"}))["output"] == "after"


async def test_a_process_in_which_a_row_was_late_takes_no_more_rows_while_the_others_end(opened, caplog):
    async with opened("waits.py", workers=1, concurrency=4) as running:
        pid, given = (await running.one({"do": "pid"}))["output"], {}
        neighbour = asyncio.create_task(running.one({"seconds": 3}))
        batch = [Example(id="late", data={"seconds": 60})]
        options = {"capture_traces": False, "timeout_s": 0.3, "on_result": given.__setitem__}
        late = asyncio.create_task(running.program.evaluate({"prompt": ""}, batch, **options))
        await eventually(lambda: "runs again" in caplog.text)
        assert not neighbour.done()
        assert (await running.one({"do": "pid"}))["output"] != pid
        assert (await neighbour)["output"]["pid"] == pid
        await late
        assert given[0]["status"] == "timeout"
