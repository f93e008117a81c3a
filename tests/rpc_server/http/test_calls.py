"""Calls with a `call_id`: run once, joined, collected later, cancelled, abandoned, let go."""

import asyncio
import gc
from typing import Any

import orjson
import pytest

from protocol import Progress, errors
from rpc_server.methods import service
from rpc_server.methods.call_ledger import AdmissionController, CallLedger
from rpc_server.methods.jobs import EvaluateJob, ProgramCallJob

WAITING = {"wait": "gate"}
NOTHING = {"eval_batch": {"batch": [], "results": []}, "components_to_update": []}


async def running(server: Any, *data: Any, **meta: Any) -> None:
    """Start a call and leave while it waits in the program."""
    answer = await server.evaluate(*data, wait_s=0, **meta)
    assert "pending" in answer
    async with asyncio.timeout(10):
        await server.program.waiting.wait()


async def test_the_same_call_asked_twice_runs_once(server: Any) -> None:
    first = await server.evaluate("a", call_id="c")
    assert await server.evaluate("a", call_id="c") == first
    assert server.program.ran == ["a"]


async def test_a_call_asked_again_while_it_runs_is_joined(server: Any) -> None:
    asked = [asyncio.create_task(server.evaluate(WAITING, call_id="c")) for _ in range(3)]
    async with asyncio.timeout(10):
        await server.program.waiting.wait()
    server.program.gate("gate").set()
    answers = await asyncio.gather(*asked)
    assert answers[0] == answers[1] == answers[2]
    assert server.program.ran == [WAITING]


async def test_the_same_id_for_another_request_is_a_conflict(server: Any) -> None:
    server.program.answers["make_reflective_dataset"] = {"dataset": {}}
    await server.evaluate("a", call_id="c")
    with pytest.raises(errors.CallIdConflict):
        await server.evaluate("b", call_id="c")
    with pytest.raises(errors.CallIdConflict):
        await server.call("make_reflective_dataset", {"candidate": server.seed, **NOTHING}, call_id="c")
    assert server.program.ran == ["a"]


async def test_meta_and_the_order_of_keys_are_not_part_of_the_request(server: Any) -> None:
    await server.evaluate({"x": 1, "y": 2}, call_id="c", traceparent="1")
    await server.evaluate({"y": 2, "x": 1}, call_id="c", wait_s=5)
    assert len(server.program.ran) == 1


async def test_a_refusal_is_not_remembered(start: Any) -> None:
    server = await start(max_queue=0)
    with pytest.raises(errors.UnknownCandidate):
        await server.call("evaluate", {"candidate": {}, "batch": []}, call_id="c")
    with pytest.raises(errors.CallNotFound):
        await server.call("get_result", {"call_id": "c"})
    assert len(await server.evaluate("a", call_id="c")) == 1


async def test_a_call_not_done_in_time_is_pending_and_collected_later(server: Any) -> None:
    answer = await server.evaluate("done", WAITING, "later", call_id="c", wait_s=0.01)
    assert answer == {"pending": {"call_id": "c", "progress": {"done": 1, "total": 3}}}
    assert await server.call("get_result", {"call_id": "c"}) == answer
    assert await server.evaluate("done", WAITING, "later", call_id="c", wait_s=0) == answer
    server.program.gate("gate").set()
    collected = await server.call("get_result", {"call_id": "c", "wait_s": 10})
    assert [result["output"] for result in collected["results"]] == ["done", WAITING, "later"]
    assert await server.call("get_result", {"call_id": "c"}) == collected


async def test_finished_results_of_a_pending_evaluation_are_given_with_their_index_and_stay(server: Any) -> None:
    batch = ("first", "second", WAITING, "fourth")
    await running(server, *batch, call_id="c")
    asked = {"call_id": "c", "partial": True}
    partial = await server.call("get_result", asked)
    assert partial["pending"]["progress"] == {"done": 2, "total": 4}
    assert [(each["index"], each["result"]["output"]) for each in partial["pending"]["results"]] == [
        (0, "first"),
        (1, "second"),
    ]
    assert await server.call("get_result", asked) == partial
    assert "results" not in (await server.call("get_result", {"call_id": "c"}))["pending"]
    assert "results" not in (await server.evaluate(*batch, call_id="c", wait_s=0))["pending"]
    server.program.gate("gate").set()
    answer = await server.call("get_result", {**asked, "wait_s": 10})
    assert [result["output"] for result in answer["results"]] == list(batch)
    assert all(answer["results"][each["index"]] == each["result"] for each in partial["pending"]["results"])


async def test_a_cancelled_evaluation_has_the_results_that_were_partial_before(server: Any) -> None:
    await running(server, "done", WAITING, call_id="c")
    partial = await server.call("get_result", {"call_id": "c", "partial": True})
    await server.call("cancel", {"call_id": "c"})
    answer = await server.call("get_result", {"call_id": "c", "partial": True})
    assert answer["results"][0] == partial["pending"]["results"][0]["result"]
    assert [result["status"] for result in answer["results"]] == ["ok", "cancelled"]


async def test_partial_results_stay_within_the_size_of_an_answer(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "answer_bytes", lambda: 25_000)
    server = await start()
    await running(server, "x" * 20_000, "y" * 20_000, WAITING, call_id="c")
    partial = await server.call("get_result", {"call_id": "c", "partial": True})
    assert partial["pending"]["progress"]["done"] == 2
    assert [each["index"] for each in partial["pending"]["results"]] == [0]


async def test_other_pending_calls_have_no_partial_results(server: Any) -> None:
    params = {"candidate": {"system": "wait"}, **NOTHING}
    await server.call("make_reflective_dataset", params, call_id="c", wait_s=0)
    answer = await server.call("get_result", {"call_id": "c", "partial": True})
    assert answer == {"pending": {"call_id": "c", "progress": {"done": 0, "total": 1}}}


async def test_a_late_answer_is_the_calls_own_error(server: Any) -> None:
    failure = errors.ProgramFailed("broken", stage="run")
    await running(server, {"wait": "gate", "raise": "late"}, call_id="c")
    server.program.gate("gate").set()
    with pytest.raises(errors.InternalError):
        await server.call("get_result", {"call_id": "c", "wait_s": 10})
    server.program.answers["make_reflective_dataset"] = failure
    params = {"candidate": server.seed, "eval_batch": {"batch": [], "results": []}, "components_to_update": []}
    for _ in range(2):
        with pytest.raises(errors.ProgramFailed) as caught:
            await server.call("make_reflective_dataset", params, call_id="d")
        assert caught.value.details == {"stage": "run"}
    assert len(server.program.calls) == 1


async def test_an_unknown_call_is_not_found(server: Any) -> None:
    for method in ("get_result", "cancel"):
        with pytest.raises(errors.CallNotFound):
            await server.call(method, {"call_id": "never seen"})


async def test_a_call_outlives_its_connection(server: Any) -> None:
    asked = asyncio.create_task(server.evaluate(WAITING, call_id="c"))
    async with asyncio.timeout(10):
        await server.program.waiting.wait()
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    server.program.gate("gate").set()
    answer = await server.call("get_result", {"call_id": "c", "wait_s": 10})
    assert answer["results"][0]["status"] == "ok"
    assert not server.program.cancelled.is_set()


async def test_without_a_call_id_closing_the_connection_cancels(server: Any) -> None:
    asked = asyncio.create_task(server.evaluate(WAITING))
    async with asyncio.timeout(10):
        await server.program.waiting.wait()
        asked.cancel()
        await server.program.cancelled.wait()
    await asyncio.gather(asked, return_exceptions=True)
    await server.still_works()


async def test_cancelling_an_evaluation_keeps_what_is_finished(server: Any) -> None:
    asked = asyncio.create_task(server.evaluate("done", WAITING, "later", call_id="c"))
    async with asyncio.timeout(10):
        await server.program.waiting.wait()
    assert await server.call("cancel", {"call_id": "c"}) == {"status": "cancelled"}
    results = await asked
    assert [result["status"] for result in results] == ["ok", "cancelled", "cancelled"]
    assert results[1].pop("seconds") >= 0
    assert results[1] == {"status": "cancelled", "score": None, "output": None}
    assert await server.call("cancel", {"call_id": "c"}) == {"status": "finished"}
    assert (await server.call("get_result", {"call_id": "c"}))["results"][0] == results[0]
    await server.still_works()


async def test_any_other_cancelled_call_ends_in_an_error(server: Any) -> None:
    params = {
        "candidate": {"system": "wait"},
        "eval_batch": {"batch": [], "results": []},
        "components_to_update": [],
    }
    asked = asyncio.create_task(server.call("make_reflective_dataset", params, call_id="c"))
    async with asyncio.timeout(10):
        await server.program.waiting.wait()
    assert await server.call("cancel", {"call_id": "c"}) == {"status": "cancelled"}
    with pytest.raises(errors.CallCancelled) as caught:
        await asked
    assert caught.value.retryable


async def test_a_finished_call_is_not_cancelled(server: Any) -> None:
    first = await server.evaluate("a", call_id="c")
    assert await server.call("cancel", {"call_id": "c"}) == {"status": "finished"}
    assert await server.evaluate("a", call_id="c") == first


async def test_a_call_cancelled_before_its_first_step_leaves_no_trace_in_the_load(start: Any) -> None:
    server = await start()
    entries = [
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "evaluate",
            "params": {
                "candidate": server.seed,
                "batch": [{"id": "0", "data": WAITING}],
                "_meta": {"call_id": "c", "wait_s": 0},
            },
        },
        {"jsonrpc": "2.0", "id": 2, "method": "cancel", "params": {"call_id": "c"}},
    ]
    _, answers = await server.post(entries)
    assert answers[1]["result"] == {"status": "cancelled"}
    answer = await server.call("get_result", {"call_id": "c"})
    assert answer["results"][0]["status"] == "cancelled"
    await asyncio.wait_for(server.service.drain(), 10)


async def test_a_call_without_requests_is_abandoned(start: Any) -> None:
    server = await start(abandon_after_s=0.05)
    await running(server, "done", WAITING, call_id="c")
    async with asyncio.timeout(10):
        await server.program.cancelled.wait()
    answer = await server.call("get_result", {"call_id": "c", "wait_s": 1})
    assert [result["status"] for result in answer["results"]] == ["ok", "cancelled"]


async def test_a_call_that_a_client_waits_for_is_not_abandoned(start: Any) -> None:
    server = await start(abandon_after_s=0.05)
    await running(server, WAITING, call_id="c")
    answer = await server.call("get_result", {"call_id": "c", "wait_s": 0.4})
    assert "pending" in answer
    assert not server.program.cancelled.is_set()
    server.program.gate("gate").set()
    assert "results" in await server.call("get_result", {"call_id": "c", "wait_s": 10})


async def test_a_result_is_evicted_after_a_while_without_requests(start: Any) -> None:
    server = await start(keep_answers_s=0.05)
    await server.evaluate("a", call_id="c")
    await asyncio.sleep(0.1)  # the time that passes is what is tested
    with pytest.raises(errors.CallNotFound):
        await server.call("get_result", {"call_id": "c"})
    await server.evaluate("a", call_id="c")
    assert server.program.ran == ["a", "a"]


async def test_answers_longest_unasked_are_let_go_when_they_grow_too_large(start: Any) -> None:
    server = await start(max_answer_bytes=30_000)
    large = "x" * 10_000
    await server.evaluate(large, call_id="1")
    await server.evaluate(large, call_id="2")
    await server.call("get_result", {"call_id": "1"})
    await server.evaluate(large, call_id="3")
    with pytest.raises(errors.CallNotFound):
        await server.call("get_result", {"call_id": "2"})
    for kept in ("1", "3"):
        assert "results" in await server.call("get_result", {"call_id": kept})


async def test_the_newest_result_is_kept_at_any_size(start: Any) -> None:
    server = await start(max_answer_bytes=0)
    await running(server, WAITING, call_id="c")
    server.program.gate("gate").set()
    assert "results" in await server.call("get_result", {"call_id": "c", "wait_s": 10})


async def test_of_a_call_that_has_ended_only_its_answer_is_kept(server: Any) -> None:
    server.program.answers["make_reflective_dataset"] = errors.ProgramFailed("no")
    await server.evaluate("a", call_id="good")
    with pytest.raises(errors.ProgramFailed):
        await server.call("make_reflective_dataset", {"candidate": server.seed, **NOTHING}, call_id="bad")
    server.program.answers.clear()  # the error in there knows the frames it went through
    gc.collect()
    assert not [kept for kept in gc.get_objects() if isinstance(kept, EvaluateJob | ProgramCallJob)]


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


async def test_a_request_at_the_moment_a_call_ends_gets_its_answer() -> None:
    ledger = CallLedger(
        AdmissionController(max_running=1, max_waiting=1), abandon_after_s=10, keep_answers_s=10, max_answer_bytes=1000
    )
    gate = asyncio.get_running_loop().create_future()
    job = _Gated(gate)
    first = asyncio.create_task(ledger.submit("c", b"request", lambda: job, None))
    await asyncio.wait_for(job.started.wait(), 10)
    gate.set_result(None)
    # Its first step comes right after the job's last one.
    second = asyncio.create_task(ledger.submit("c", b"request", lambda: job, None))
    assert [bytes(orjson.dumps(answer)) for answer in await asyncio.gather(first, second)] == [b'"done"'] * 2


class _Gated:
    """A job that ends when a future does."""

    examples = 1
    progress = Progress(done=0, total=1)

    def __init__(self, gate: "asyncio.Future[None]") -> None:
        self.started = asyncio.Event()
        self._gate = gate

    async def run(self, _admission: Any) -> str:
        self.started.set()
        await self._gate
        return "done"

    def cancelled_result(self) -> str:
        raise errors.CallCancelled


async def test_wait_s_needs_a_call_id(server: Any) -> None:
    with pytest.raises(errors.InvalidParams) as caught:
        await server.evaluate("a", wait_s=1)
    assert caught.value.details["errors"][0]["path"] == "_meta.wait_s"
    assert server.program.ran == []
