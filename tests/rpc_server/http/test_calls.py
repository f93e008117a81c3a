"""Calls with a `call_id`: run once, joined, collected later, cancelled, abandoned, let go."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from protocol import errors
from rpc_server.methods import call_ledger, service

WAITING = {"wait": "gate"}
NOTHING = {"eval_batch": {"batch": [], "results": []}, "components_to_update": []}


async def running(server: Any, *data: Any, **meta: Any) -> None:
    """Start a call and leave while it waits in the program."""
    answer = await server.evaluate(*data, wait_s=0, **meta)
    assert "pending" in answer
    async with asyncio.timeout(10):
        await server.program.waiting.wait()


async def test_partial_results_stay_within_the_size_of_an_answer(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "answer_bytes", lambda: 25_000)
    server = await start()
    await running(server, "x" * 20_000, "y" * 20_000, WAITING, call_id="c")
    partial = await server.call("get_result", {"call_id": "c", "partial": True})
    assert partial["pending"]["progress"]["done"] == 2
    assert [each["index"] for each in partial["pending"]["results"]] == [0]


async def test_a_late_answer_is_the_calls_own_error(server: Any) -> None:
    failure = errors.ProgramFailed("broken", stage="run", log_tail="the end")
    await running(server, {"wait": "gate", "raise": "late"}, call_id="c")
    server.program.gate("gate").set()
    with pytest.raises(errors.InternalError):
        await server.call("get_result", {"call_id": "c", "wait_s": 10})
    server.program.answers["make_reflective_dataset"] = failure
    params = {"candidate": server.seed, **NOTHING}
    for _ in range(2):
        with pytest.raises(errors.ProgramFailed) as caught:
            await server.call("make_reflective_dataset", params, call_id="d")
        assert (caught.value.message, caught.value.details) == ("broken", {"stage": "run", "log_tail": "the end"})
    assert len(server.program.calls) == 1
    server.program.answers["make_reflective_dataset"] = errors.Overloaded(retry_after_s=1.0)
    for _ in range(2):
        with pytest.raises(errors.Overloaded):
            await server.call("make_reflective_dataset", params, call_id="e")
    assert len(server.program.calls) == 3, "a call that was refused can be made again"


async def test_a_call_that_a_client_waits_for_is_not_abandoned(start: Any) -> None:
    server = await start(abandon_after_s=0.05)
    await running(server, WAITING, call_id="c")
    waiting = asyncio.create_task(server.call("get_result", {"call_id": "c", "wait_s": 0.4}))
    await server.call("get_result", {"call_id": "c", "wait_s": 0.1})
    assert "pending" in await waiting, "another client that stops waiting changes nothing"
    assert not server.program.cancelled.is_set()
    server.program.gate("gate").set()
    assert "results" in await server.call("get_result", {"call_id": "c", "wait_s": 10})


async def test_answers_longest_unasked_are_let_go_when_they_grow_too_large(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(call_ledger, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    server = await start(max_answer_bytes=30_000, keep_answers_s=10.0)
    large = "x" * 10_000
    await server.evaluate(large, call_id="1")
    await server.evaluate(large, call_id="2")
    await server.call("get_result", {"call_id": "1"})
    await server.evaluate(large, call_id="3")
    with pytest.raises(errors.CallNotFound):
        await server.call("get_result", {"call_id": "2"})
    for kept in ("1", "3"):
        assert "results" in await server.call("get_result", {"call_id": kept})
    await server.evaluate(3 * large, call_id="4")
    for clock[0] in (0.0, 8.0, 16.0):  # each time anew
        assert "results" in await server.call("get_result", {"call_id": "4"}), "the newest one stays"


async def test_an_error_too_deep_to_be_written_ends_its_call_all_the_same(server: Any) -> None:
    deep: list[Any] = []
    for _ in range(2_000):
        deep = [deep]
    server.program.answers["make_reflective_dataset"] = errors.ProgramFailed("no", found=deep)
    for _ in range(2):
        with pytest.raises(errors.LimitExceeded):
            await server.call("make_reflective_dataset", {"candidate": server.seed, **NOTHING}, call_id="c")
    assert len(server.program.calls) == 1
    await asyncio.wait_for(server.service.drain(), 10)
