"""The pool of program processes: what runs where, its time limit, and what runs again after a hang or a death."""

import asyncio
import functools
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

from protocol import Candidate, CandidateItem, Example, ProgramInfo
from protocol.errors import ProgramFailed, RpcError
from rpc_server.program.child_process import Exit
from rpc_server.program.launcher import Launcher
from rpc_server.program.process_factory import TRIES, ProcessFactory
from rpc_server.program.process_requests import (
    ExamplesCall,
    ExamplesRequest,
    Isolation,
    MethodRequest,
    ProcessRequest,
    states_timeout,
)
from rpc_server.program.program import PROGRAM_CAPABILITIES, ResultDict, combined_limits
from rpc_server.program.request_queue import RequestQueue, WorkerSlot
from rpc_server.settings.settings import Settings

GRACE_S = 0.75
"""Seconds after its limit in which a process may still answer a request, before it is ended."""

_EXTRA_PROCESSES = 8  # for what runs again, in addition to the usual ones

logger = logging.getLogger(__name__)


class Pool:
    """A `Program` over processes of one launcher.

    A limit counts from the moment a request is sent to a process. At its limit it is cancelled. If it is answered
    within a grace period, it alone runs again, in a process of its own. If not, its process is ended, and all of its
    requests run again, each in a process of its own. A time-out counts if nothing else ran in the process, which is
    new or takes one request at a time.

    Requests of a process that died run again likewise, and in the end while nothing else runs: what dies then is the
    cause. If the process that it was forked from died too, it must die a second time.
    """

    def __init__(
        self, launcher: Launcher, first: WorkerSlot, info: ProgramInfo, settings: Settings, *, size: int, at_rest: int
    ) -> None:
        """Start the other processes.

        `size`: processes at most, besides those for what runs again; `at_rest`: those that are started before examples
        wait.
        """
        described = first.discovery
        own = described.limits.model_copy(update={"max_concurrency": size * first.room})
        self.info = info
        self.capabilities = PROGRAM_CAPABILITIES & {*described.capabilities}
        self.limits = combined_limits(own, settings)
        offered = described.datasets if "datasets" in described.capabilities else {}
        self.splits: Mapping[str, int] = {split: held.size for split, held in offered.items()}
        self._size = size
        self._at_rest = at_rest
        self._is_single = "refs" in self.capabilities  # one process, kept as long as it lives for its memory
        self._cancels = "cancel" in described.capabilities
        self._max_line_bytes = described.limits.max_request_bytes if settings.is_a == "command" else None
        self._call_timeout_s = settings.call_timeout_s
        self._loop = asyncio.get_running_loop()
        self._queue = RequestQueue()
        self._slots: list[WorkerSlot] = []
        self._numbers = itertools.count(1)
        self._state: Any = None
        self._factory = ProcessFactory(
            launcher,
            start_timeout_s=settings.start_timeout_s,
            on_started=self._process_started,
            on_failed=self._start_failed,
            on_retry=self._fill,
        )
        self._closed = False
        self.repeats = 0
        """Requests sent again."""
        self.repeated_s = 0.0
        """Seconds that their earlier attempts took."""
        self._add(first)
        self._fill()

    @property
    def ready(self) -> bool:
        """False after two failed starts in a row, until a process starts."""
        return not self._closed and (bool(self._slots) or self._factory.failures < TRIES)

    async def evaluate(
        self,
        candidate: Candidate,
        batch: Sequence[Example],
        *,
        capture_traces: bool,
        items: Sequence[CandidateItem] | None = None,
        timeout_s: float | None = None,
        group: str | None = None,
        on_result: Callable[[int, ResultDict], None],
    ) -> None:
        """See `Program.evaluate`."""
        shared: dict[str, Any] = {"candidate": candidate, "capture_traces": capture_traces}
        if items is not None:
            shared["items"] = [item.model_dump() for item in items]
        if group is not None and "refs" in self.capabilities:
            shared["_meta"] = {"group": group}
        each = {"batch": _rows(batch, untyped="untyped_rows" in self.capabilities)}
        await self._run_examples("evaluate", shared, each, on_result, timeout_s, whole=items is not None)

    async def score(
        self,
        batch: Sequence[Example],
        results: Sequence[ResultDict],
        *,
        timeout_s: float | None = None,
        on_result: Callable[[int, ResultDict], None],
    ) -> None:
        """See `Program.score`."""
        await self._run_examples("score", {}, {"batch": _rows(batch), "results": results}, on_result, timeout_s)

    async def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """See `Program.call`."""
        request = MethodRequest(method, params, limit_s=self._call_limit(params))
        await self._run([request], request.done)
        return request.done.result()

    async def close(self) -> None:
        """End all processes; reject what waits."""
        self._closed = True
        self._refuse_all(_closing())
        for slot in tuple(self._slots):
            self._retire(slot, gracefully=not slot.running)
        await self._factory.close()

    def _call_limit(self, params: dict[str, Any]) -> float:
        """Return a limit with room for each of the call's examples, as reflection may take as long as they do."""
        rows = (params.get("eval_batch") or {}).get("batch") or ()
        return max(self._call_timeout_s, (self.limits.example_timeout_s or 0) * len(rows))

    async def _run_examples(
        self,
        method: str,
        shared: dict[str, Any],
        each: Mapping[str, Sequence[Any]],
        on_result: Callable[[int, ResultDict], None],
        timeout_s: float | None,
        *,
        whole: bool = False,
    ) -> None:
        """Run a call with the params `shared` by its examples, and those that have a value for each."""
        size = len(each["batch"])
        if not size:
            return
        most = self.limits.max_result_bytes
        assert most is not None, "`limits.combined_limits` sets it"  # noqa: S101
        limit_s = self.limits.example_timeout_s
        if timeout_s is not None:
            limit_s = min(timeout_s, limit_s or timeout_s)
            shared["_meta"] = {**shared.get("_meta", {}), "example_timeout_s": limit_s}
        call = ExamplesCall(method, shared, each, on_result=on_result, max_result_bytes=most)
        if whole or self.limits.whole_batches:
            pieces = [ExamplesRequest(call, range(size), limit_s=None if limit_s is None else limit_s * size)]
        else:
            pieces = [ExamplesRequest(call, (position,), limit_s=limit_s) for position in range(size)]
        await self._run(pieces, call.done)

    # -- from a call to a process ------------------------------------------------------------------------------------

    async def _run(self, requests: Sequence[ProcessRequest], done: "asyncio.Future[Any]") -> None:
        if self._closed:
            raise _closing()
        if not self.ready and self._factory.last_failure is not None:
            raise copy(self._factory.last_failure)
        self._queue.add(requests)
        self._dispatch()
        try:
            await done
        finally:
            if done.cancelled() or done.exception() is not None:
                self._abandon(requests)

    @property
    def _running(self) -> int:
        return sum(slot.live for slot in self._slots)

    def _dispatch(self) -> None:
        while self._running < self.limits.max_concurrency and (chosen := self._next()) is not None:
            self._send(*chosen)
        self._fill()

    def _next(self) -> tuple[WorkerSlot, ProcessRequest] | None:
        """Take the next request that a process has room for; what runs again comes first."""
        if any(slot.live and slot.isolation is Isolation.POOL for slot in self._slots):
            return None
        for isolation in self._queue.isolations():
            slot = self._slot_for(isolation)
            if slot is not None:
                return slot, self._queue.take(isolation)
            if isolation and (isolation is Isolation.POOL or self._is_single):
                return None  # what runs must end first
        return None

    def _slot_for(self, isolation: Isolation) -> WorkerSlot | None:
        if isolation is Isolation.POOL and self._running:
            return None
        fit = [slot for slot in self._slots if slot.process.alive and self._fits(slot, isolation)]
        return min(fit, key=lambda slot: len(slot.running), default=None)

    def _fits(self, slot: WorkerSlot, isolation: Isolation) -> bool:
        """Report whether a process takes another request of this isolation."""
        if slot.used and not isolation and not slot.isolation and slot.live < slot.room:
            return True
        if slot.live or (slot.used and not self._is_single):
            return False
        # Processes that were started for what runs again are left for it.
        return bool(isolation) or sum(one.used and not one.isolation for one in self._slots) < self._size

    def _send(self, slot: WorkerSlot, request: ProcessRequest) -> None:
        serial = slot.room == 1 and not self._cancels  # it has ended a request when it answers
        alone = serial or (bool(request.isolation) and not slot.used)
        request.begin(slot, f"p{next(self._numbers)}", alone=alone)
        method, params = request.request()
        self._add_meta(slot, request, method, params)
        try:
            on_answer = functools.partial(self._answered, slot, request)
            slot.process.request(method, params, on_answer, max_bytes=self._max_line_bytes, log=request.log)
        except RpcError as error:  # nested too deep, or too long with rows and trajectories filled in
            request.slot = None
            request.reject(error)
            return
        slot.running.add(request)
        slot.used = True
        slot.isolation = request.isolation
        if request.limit_s is not None:
            request.timer = self._loop.call_later(request.limit_s, self._limit_reached, slot, request)

    def _add_meta(self, slot: WorkerSlot, request: ProcessRequest, method: str, params: dict[str, Any]) -> None:
        meta: dict[str, Any] = {"call_id": request.call_id} if self._cancels else {}
        if slot.restore is not None:
            if method == "make_reflective_dataset" and params.get("adapter_state") is None:
                params["adapter_state"] = slot.restore
            elif method == "evaluate":
                meta["adapter_state"] = slot.restore
            slot.restore = None
        if meta:
            params["_meta"] = {**params.get("_meta", {}), **meta}

    # -- from a process to a call ------------------------------------------------------------------------------------

    def _answered(self, slot: WorkerSlot, request: ProcessRequest, message: dict[str, Any]) -> None:
        if request.slot is not slot:
            return  # a late response of an abandoned process: the example runs elsewhere
        self._release(slot, request)
        result = message.get("result")
        if isinstance(result, dict) and "adapter_state" in self.capabilities:
            self._state = result.get("adapter_state", self._state)
        ran_over = request.ran_over(message, cancels=self._cancels)
        late = ran_over or states_timeout(message)
        # A single process is replaced only if what ran before may be the cause.
        slot.late |= late and (not self._is_single or (bool(request.isolation) and not request.alone))
        if late and not request.alone and not request.abandoned:
            request.discard(message)
            self._run_again([request], Isolation.PROCESS, "it was late in a process that others use")
        elif not request.abandoned:
            request.answered(message, late=ran_over)
        self._end_if_unneeded(slot)
        self._dispatch()

    def _limit_reached(self, slot: WorkerSlot, request: ProcessRequest) -> None:
        """Cancel the request; the process may still answer it for a moment."""
        request.late = True
        self._cancel(slot, request)
        request.timer = self._loop.call_later(GRACE_S, self._end_overdue, slot, request)

    def _end_overdue(self, slot: WorkerSlot, request: ProcessRequest) -> None:
        slot.process.collect_output()
        unfinished = self._remove(slot)
        if request.alone and not request.abandoned:
            unfinished.remove(request)
            request.timed_out(slot.process.unanswered())
        self._run_again(unfinished, Isolation.PROCESS, "their process did not end one that was late")
        self._factory.end(slot.process, graceful=False)
        self._dispatch()

    def _process_died(self, slot: WorkerSlot, how: Exit) -> None:
        if slot not in self._slots:
            return  # its end was requested
        victims = self._remove(slot)
        if not slot.used and not how.parent_died:
            # It starts but ends at once: pause before the next start.
            self._factory.failed(ProgramFailed(f"the program's process {how} before its first request", stage="start"))
        if slot.isolation is Isolation.POOL and victims:
            (request,) = victims
            if not how.parent_died or request.lost_parent:
                victims.remove(request)
                request.died(how, slot.process.unanswered())
            request.lost_parent = how.parent_died  # perhaps of what earlier attempts left running
        self._run_again(victims, Isolation.POOL, f"their process {how}")
        self._dispatch()

    def _run_again(self, requests: Sequence[ProcessRequest], most: Isolation, why: str) -> None:
        """Queue requests again, each isolated more, up to `most`."""
        for request in requests:
            request.isolation = Isolation(max(request.isolation, min(request.isolation + 1, most)))
            self.repeats += 1
            self.repeated_s += request.seconds
            self._queue.add_again(request)
        if requests:
            count, seconds = self.repeats, self.repeated_s
            logger.warning(
                "%d requests run again, as %s; since the start: %d, %.0f s of work lost",
                len(requests),
                why,
                count,
                seconds,
            )

    def _release(self, slot: WorkerSlot, request: ProcessRequest) -> None:
        if request.timer is not None:
            request.timer.cancel()
            request.timer = None
        slot.running.discard(request)
        request.slot = None

    # -- giving up ---------------------------------------------------------------------------------------------------

    def _abandon(self, requests: Sequence[ProcessRequest]) -> None:
        """Cancel requests that no call waits for. They take no room; their limits, if any, still end their process."""
        for request in requests:
            request.abandoned = True
            if request.slot is not None:
                self._cancel(request.slot, request)
        self._queue.drop_abandoned()
        for slot in tuple(self._slots):
            self._end_if_unneeded(slot)
        self._dispatch()

    def _cancel(self, slot: WorkerSlot, request: ProcessRequest) -> None:
        if self._cancels:
            slot.process.request("cancel", {"call_id": request.call_id}, lambda _: None)

    def _end_if_unneeded(self, slot: WorkerSlot) -> None:
        """End an idle process that is not fit for more, or one too many.

        One that runs abandoned requests only is ended too, unless it can cancel them and is among the usual ones.
        """
        if slot not in self._slots:
            return
        if slot.running:
            if not slot.live and (not self._cancels or (slot.isolation and not self._is_single)):
                self._retire(slot, gracefully=False)
            return
        too_many = slot.used and len(self._slots) > self._wanted()
        if slot.late or too_many or (slot.isolation and not self._is_single):
            self._retire(slot, gracefully=not slot.late)
        elif self._is_single:
            slot.isolation = Isolation.NONE

    # -- processes ---------------------------------------------------------------------------------------------------

    def _wanted(self) -> int:
        if self._is_single:
            return self._size
        isolated = self._queue.waiting_again + sum(bool(slot.isolation) for slot in self._slots)
        return self._size + min(isolated, _EXTRA_PROCESSES)

    def _fill(self) -> None:
        wanted = self._wanted()
        if wanted == self._size:  # nothing runs again
            wanted = min(wanted, max(self._at_rest, self._running + self._queue.waiting_first))
        self._factory.ensure_starting(wanted - len(self._slots))

    def _process_started(self, slot: WorkerSlot) -> None:
        self._add(slot)
        self._dispatch()

    def _add(self, slot: WorkerSlot) -> None:
        slot.restore = self._state
        self._slots.append(slot)
        slot.process.exited.add_done_callback(lambda exited: self._process_died(slot, exited.result()))

    def _start_failed(self, error: ProgramFailed) -> None:
        if not self.ready:
            self._refuse_all(error)

    def _refuse_all(self, error: ProgramFailed) -> None:
        """Fail every call that waits or runs: no process is available."""
        running = [request for slot in self._slots for request in slot.running]
        for request in (*self._queue.all(), *running):
            # A copy for each call, as raising adds to its traceback.
            request.reject(copy(error))

    def _remove(self, slot: WorkerSlot) -> list[ProcessRequest]:
        """Forget a process; return the requests that it has not answered and a call waits for."""
        self._slots.remove(slot)
        running = sorted(slot.running, key=lambda request: request.sent)
        for request in running:
            self._release(slot, request)
        return [request for request in running if not request.abandoned]

    def _retire(self, slot: WorkerSlot, *, gracefully: bool = True) -> None:
        self._remove(slot)
        self._factory.end(slot.process, graceful=gracefully)


def _rows(batch: Sequence[Example], *, untyped: bool = False) -> list[dict[str, Any]]:
    """Return the rows for the program. `untyped`: it reads those that are."""
    return [
        {"id": example.id, "data": example.data, **({"untyped": True} if untyped and example.untyped else {})}
        for example in batch
    ]


def _closing() -> ProgramFailed:
    return ProgramFailed("the server is shutting down", stage="close", retryable=True)
