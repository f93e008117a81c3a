"""The reference server's calls with a `call_id`: joined, kept, collected, cancelled."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from protocol import JsonValue
from protocol.errors import CallCancelled, CallIdConflict, CallNotFound, RpcError
from tests.conformance.reference_params import LIMITS
from tests.conformance.reference_program import Bad


@dataclass
class Call:
    """A call known by its `call_id`."""

    method: str
    params: Any
    task: "asyncio.Task[Any]"
    progress: dict[str, Any]
    cancelled: bool = False
    waiting: int = 0
    asked: float = 0.0
    abandons: asyncio.TimerHandle | None = None

    def end(self) -> None:
        """Cancel it: no request waits for it."""
        self.cancelled = True
        self.task.cancel()


class Calls:
    """Every call known by a `call_id`. `start` runs a method as a task that no lost connection cancels."""

    def __init__(self, bad: Bad, start: Callable[[str, Any, dict[str, Any]], "asyncio.Task[JsonValue]"]) -> None:
        self.bad = bad
        self.start = start
        self.calls: dict[Any, Call] = {}
        self.refused: dict[str, RpcError] = {}
        self.by_params: dict[str, Any] = {}

    async def identified(self, method: str, params: dict[str, Any], call_id: str, wait_s: float | None) -> JsonValue:
        key: Any = (call_id, method) if self.bad("call_ids_per_method") else call_id
        compared: Any = {name: value for name, value in params.items() if name != "_meta" or self.bad("meta_counts")}
        if self.bad("candidate_uncompared"):
            compared.pop("candidate", None)
        compared = json.dumps(compared, sort_keys=not self.bad("text_of_params"))
        alike = method + compared
        if self.bad("caches_by_params") and alike in self.by_params:
            key = self.by_params[alike]
        call = self.find(key)
        if call is not None and call.task.done() and self.bad("forgets_answers"):
            call = None
        if call is not None and not call.task.done() and self.bad("no_joining"):
            call = None
        if call is not None and not call.task.done() and self.bad("asked_again_restarts"):
            call.task.cancel()
            call = None
        if call is None:
            progress = {"done": 0, "total": len(params["batch"]) if method == "evaluate" else 1, "results": {}}
            call = self.calls[key] = Call(method, compared, self.start(method, params, progress), progress)
            call.task.add_done_callback(lambda task, call=call: setattr(call, "asked", task.get_loop().time()))
            if self.bad("abandons_from_the_start"):
                asyncio.get_running_loop().call_later(LIMITS["abandon_after_s"], call.end)
            self.by_params[alike] = key
        elif (call.method, call.params) != (method, compared) and not self.bad("ignores_params"):
            raise CallIdConflict
        return await self.waited(call, call_id, None if self.bad("ignores_wait") else wait_s)

    def find(self, key: Any) -> Call | None:
        """The call, unless its answer has been let go."""
        call = self.calls.get(key)
        if call is None or not call.task.done():
            return call
        now = asyncio.get_running_loop().time()
        if now - call.asked > LIMITS["keep_answers_s"] and not self.bad("keeps_forever"):
            del self.calls[key]
            return None
        if not self.bad("keeps_from_the_end"):
            call.asked = now
        return call

    async def waited(self, call: Call, call_id: str, wait_s: float | None, *, partial: bool = False) -> JsonValue:
        if self.bad("always_pending") and wait_s:
            await asyncio.sleep(0.2)
        call.waiting += 1
        if call.abandons is not None:
            call.abandons.cancel()
        try:
            await asyncio.wait([call.task], timeout=wait_s)
        except asyncio.CancelledError:
            if self.bad("dies_with_connection"):
                call.task.cancel()
                self.calls = {key: other for key, other in self.calls.items() if other is not call}
            raise
        finally:
            call.waiting -= 1
            if not call.waiting and not call.task.done() and not self.bad("never_abandons"):
                call.abandons = asyncio.get_running_loop().call_later(LIMITS["abandon_after_s"], call.end)
        if not call.task.done() or (self.bad("always_pending") and wait_s):
            done = 0 if self.bad("no_progress") else call.progress["done"]
            progress = {"done": done, "total": call.progress["total"]}
            return {"pending": {"call_id": call_id, "progress": progress} | self.finished(call, partial=partial)}
        if call.cancelled and self.bad("cancel_raises"):
            raise CallCancelled
        return call.task.result()

    def finished(self, call: Call, *, partial: bool) -> dict[str, Any]:
        """The results of examples that are finished, by index."""
        if call.method != "evaluate" or not (partial or self.bad("partial_unasked")) or self.bad("partial_ignored"):
            return {}
        found = call.progress["results"]
        order = list(found) if self.bad("partial_as_finished") else sorted(found)
        results = [{"index": index, "result": found[index]} for index in order]
        if self.bad("partial_counted"):
            results = [{**each, "index": at} for at, each in enumerate(results)]
        return {"results": results}

    async def get_result(self, params: dict[str, Any]) -> JsonValue:
        call_id = params["call_id"]
        if call_id in self.refused:
            raise self.refused[call_id]
        call = self.find(call_id)
        if call is None:
            if self.bad("unknown_is_pending"):
                return {"pending": {"call_id": call_id, "progress": {"done": 0, "total": 1}}}
            raise CallNotFound
        partial = bool(params.get("partial", False))
        wait_s = 0.0 if partial and self.bad("partial_at_once") else params.get("wait_s", 0.0)
        answer = await self.waited(call, call_id, wait_s, partial=partial)
        if partial and call.task.done() and self.bad("partial_to_the_end") and "results" in answer:
            results = [{"index": index, "result": result} for index, result in enumerate(answer["results"])]
            answer = {"pending": {"call_id": call_id, "progress": {"done": 1, "total": 1}, "results": results}}
        if call.task.done() and self.bad("collects_once"):
            del self.calls[call_id]
        return answer

    async def cancel(self, params: dict[str, Any]) -> JsonValue:
        call = self.calls.get(params["call_id"])
        if call is None:
            if self.bad("cancels_anything"):
                return {"status": "finished"}
            raise CallNotFound
        if call.task.done():
            return {"status": "cancelled" if self.bad("cancels_the_finished") else "finished"}
        for other in self.calls.values() if self.bad("cancels_all") else [call]:
            other.cancelled = True
            if not self.bad("cancel_ignored"):
                other.task.cancel()
                await asyncio.wait([other.task])
        if self.bad("forgets_cancelled"):
            del self.calls[params["call_id"]]
        return {"status": "cancelled"}
