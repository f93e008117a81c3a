"""Overload and draining."""

import asyncio
from typing import Any

import pytest

from protocol import errors

WAITING = {"wait": "gate"}


async def occupied(server: Any, examples: int, **meta: Any) -> "asyncio.Task[Any]":
    asked = asyncio.create_task(server.evaluate(*[WAITING] * examples, **meta))
    async with asyncio.timeout(10):
        await server.program.waiting.wait()
    return asked


async def test_room_is_given_back_example_by_example(start: Any, fake_program: Any) -> None:
    server = await start(fake_program(max_concurrency=1), max_queue=1)
    asked = asyncio.create_task(server.evaluate("done", WAITING))
    async with asyncio.timeout(10):
        await server.program.waiting.wait()
    assert len(await server.evaluate("a")) == 1
    server.program.gate("gate").set()
    await asked


async def test_a_batch_larger_than_all_room_runs_when_nothing_else_does(start: Any, fake_program: Any) -> None:
    server = await start(fake_program(max_concurrency=1), max_queue=0)
    with pytest.raises(errors.InternalError):
        await server.evaluate({"raise": "a defect, whose call gives its room back"})
    assert len(await server.evaluate("a", "b", "c")) == 3
    asked = await occupied(server, 1)
    with pytest.raises(errors.Overloaded) as caught:
        await server.evaluate("a")
    assert caught.value.details["retry_after_s"] > 0
    server.program.gate("gate").set()
    await asked


async def test_while_draining_new_work_is_refused_and_running_work_finishes(server: Any) -> None:
    asked = await occupied(server, 1)
    draining = asyncio.create_task(server.service.drain())
    await asyncio.sleep(0)
    assert (await server.post(None, path="/health", verb="GET"))[0] == 503
    for meta in ({}, {"call_id": "new"}):
        with pytest.raises(errors.Overloaded) as caught:
            await server.evaluate("a", **meta)
        assert caught.value.details["retry_after_s"] > 0
    await server.call("discover")
    assert not draining.done()
    server.program.gate("gate").set()
    assert (await asked)[0]["status"] == "ok"
    await asyncio.wait_for(draining, 10)


async def test_draining_waits_until_finished_answers_are_collected(server: Any) -> None:
    await server.evaluate(WAITING, call_id="c", wait_s=0)
    draining = asyncio.create_task(server.service.drain())
    server.program.gate("gate").set()
    await server.call("discover")  # time enough for the call to finish
    assert not draining.done()
    answer = await server.call("get_result", {"call_id": "c", "wait_s": 10})
    assert answer["results"][0]["status"] == "ok"
    await asyncio.wait_for(draining, 10)


async def test_while_draining_a_running_call_can_be_joined_and_cancelled(server: Any) -> None:
    asked = await occupied(server, 1, call_id="c")
    await server.evaluate(WAITING, call_id="d", wait_s=0)
    draining = asyncio.create_task(server.service.drain())
    await asyncio.sleep(0)
    assert "pending" in await server.evaluate(WAITING, call_id="c", wait_s=0)
    assert await server.call("cancel", {"call_id": "c"}) == {"status": "cancelled"}
    assert (await asked)[0]["status"] == "cancelled"
    assert await server.call("cancel", {"call_id": "d"}) == {"status": "cancelled"}
    await asyncio.wait_for(draining, 10)  # also if nothing collects the results of a call that was cancelled


async def test_draining_ends_after_drain_s_while_calls_run(start: Any) -> None:
    server = await start(drain_s=0.05)
    asked = await occupied(server, 1)
    await asyncio.wait_for(server.service.drain(), 10)
    assert not asked.done()
    server.program.gate("gate").set()
    await asked
