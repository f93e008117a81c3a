"""The pool of program processes: which request runs where, its deadline, and the recovery from hangs and deaths."""

import asyncio
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

from protocol import Candidate, CandidateItem, Example, Limits, ProgramInfo
from protocol.errors import ProgramFailed, RpcError
from rpc_server.program.launcher import Launcher
from rpc_server.program.process import Exit
from rpc_server.program.process_factory import TRIES, ProcessFactory, StartedProcess
from rpc_server.program.process_output import BoundedLog
from rpc_server.program.process_requests import (
    ExamplesCall,
    ExamplesRequest,
    MethodRequest,
    ProcessRequest,
    stated_seconds,
    timeouts,
)
from rpc_server.program.program import ResultDict
from rpc_server.program.scheduler import ProcessHeartbeat, Scheduler, WorkerSlot, WorkItem

GRACE_S = 0.75
"""Seconds after its deadline in which a process may still end an example itself."""

_EXTRA_PROCESSES = 8  # for isolated items, in addition to the usual ones

_MAX_BLOCKED_SHARE = 0.1
"""Share of a limit for which a process may fail to respond before its work counts as blocked."""

_SOON_S = 0.001

_ALONE = "while no other example ran in its process"
_RESPONSIVE = "while its process was responsive"


@dataclass(frozen=True)
class PoolPlan:
    """The constant parameters of a pool.

    `limits`: of all processes together. `size`: processes at most, besides those that a suspect needs to itself;
    `size_at_rest`: those that are started before examples wait. `single`: one process, kept as long as it lives for its
    memory. `max_line_bytes`: the longest request. `fresh_after_deadline`: a process that ended an example late is
    replaced.
    """

    info: ProgramInfo
    capabilities: frozenset[str]
    limits: Limits
    size: int
    size_at_rest: int
    single: bool
    splits: Mapping[str, int]
    cancels: bool
    fresh_after_deadline: bool
    max_line_bytes: int | None
    start_timeout_s: float
    call_timeout_s: float


class Pool:
    """A `Program` over processes of one launcher.

    Requests are scheduled by `Scheduler`. A deadline counts from the moment a request is sent to a process. A process
    that misses it is killed, and its other requests run again, uncounted.

    A request past its deadline is timed out only if its process ran nothing else, or answered heartbeats for all but a
    tenth of its limit, which is added. Any other may have been blocked by other requests: it runs again isolated in a
    new process.

    Requests of a process that died also run again isolated, and exclusively if that dies while others run: what dies
    alone is the cause. If all processes died with the one they were forked from, their requests run again exclusively.
    """

    def __init__(self, launcher: Launcher, first: StartedProcess, plan: PoolPlan) -> None:
        self.info = plan.info
        self.capabilities = plan.capabilities
        self.limits = plan.limits
        self.splits = plan.splits
        self._plan = plan
        self._loop = asyncio.get_running_loop()
        self._scheduler = Scheduler()
        self._slots: list[WorkerSlot] = []
        self._running = 0
        self._numbers = itertools.count(1)
        self._state: Any = None
        self._factory = ProcessFactory(
            launcher,
            start_timeout_s=plan.start_timeout_s,
            on_started=self._process_started,
            on_failed=self._start_failed,
            on_retry=self._fill,
        )
        self._closed = False
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
        rows = _rows(batch, untyped="untyped_rows" in self.capabilities)
        more: dict[str, Any] = {} if items is None else {"items": [item.model_dump() for item in items]}
        if group is not None and "refs" in self.capabilities:
            more["_meta"] = {"group": group}

        def params(positions: Sequence[int]) -> dict[str, Any]:
            chosen = [rows[position] for position in positions]
            return {"candidate": candidate, "batch": chosen, "capture_traces": capture_traces, **more}

        await self._run_examples("evaluate", len(batch), params, on_result, timeout_s, whole=items is not None)

    async def score(
        self,
        batch: Sequence[Example],
        results: Sequence[ResultDict],
        *,
        timeout_s: float | None = None,
        on_result: Callable[[int, ResultDict], None],
    ) -> None:
        """See `Program.score`."""
        rows = _rows(batch)

        def params(positions: Sequence[int]) -> dict[str, Any]:
            chosen = [rows[position] for position in positions]
            return {"batch": chosen, "results": [results[position] for position in positions]}

        await self._run_examples("score", len(batch), params, on_result, timeout_s, whole=False)

    async def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """See `Program.call`."""
        call = MethodRequest(method, params, limit_s=self._call_limit(params))
        await self._run([call], call.done)
        return call.done.result()

    async def close(self) -> None:
        """End all processes; reject what waits."""
        self._closed = True
        self._refuse_all(_closing())
        for slot in tuple(self._slots):
            self._retire(slot)
        await self._factory.close()

    def _call_limit(self, params: dict[str, Any]) -> float:
        """Return a limit with room for each of the call's examples, as reflection may take as long as they do."""
        rows = (params.get("eval_batch") or {}).get("batch") or ()
        return max(self._plan.call_timeout_s, (self.limits.example_timeout_s or 0) * len(rows))

    async def _run_examples(
        self,
        method: str,
        size: int,
        params: Callable[[Sequence[int]], dict[str, Any]],
        on_result: Callable[[int, ResultDict], None],
        timeout_s: float | None,
        *,
        whole: bool,
    ) -> None:
        if not size:
            return
        most = self.limits.max_result_bytes
        assert most is not None, "`limits.combined_limits` sets it"  # noqa: S101
        limit_s = min((each for each in (self.limits.example_timeout_s, timeout_s) if each is not None), default=None)

        def limited(positions: Sequence[int]) -> dict[str, Any]:
            asked = params(positions)
            return {**asked, "_meta": {**asked.get("_meta", {}), "example_timeout_s": limit_s}}

        of_piece = params if timeout_s is None else limited
        call = ExamplesCall(method, size, of_piece, on_result=on_result, max_result_bytes=most)
        if whole or self.limits.whole_batches:
            pieces = [ExamplesRequest(call, range(size), limit_s=None if limit_s is None else limit_s * size)]
        else:
            pieces = [ExamplesRequest(call, (position,), limit_s=limit_s) for position in range(size)]
        await self._run(pieces, call.done)

    # -- from a call to a process ------------------------------------------------------------------------------------

    async def _run(self, pieces: Sequence[ProcessRequest], done: "asyncio.Future[Any]") -> None:
        if self._closed:
            raise _closing()
        if not self.ready and self._factory.last_failure is not None:
            raise copy(self._factory.last_failure)
        items = [WorkItem(work, f"p{next(self._numbers)}") for work in pieces]
        self._scheduler.add(items)
        self._dispatch()
        try:
            await done
        finally:
            if done.cancelled() or done.exception() is not None:
                self._abandon(items)

    def _dispatch(self) -> None:
        while self._running < self.limits.max_concurrency:
            if self._scheduler.any_exclusive:
                slot = None if self._running else self._slot_for_suspect()
                if slot is None:
                    break
                self._send(slot, self._scheduler.next_exclusive())
                continue
            if any(item.exclusive for slot in self._slots for item in slot.running):
                break
            if self._scheduler.any_isolated:
                slot = self._slot_for_suspect()
                if slot is not None:
                    self._send(slot, self._scheduler.next_isolated())
                    continue
                if self._plan.single:
                    break  # its one process must become idle first
            slot = self._slot_with_room()
            if slot is None:
                break
            item = self._scheduler.next()
            if item is None:
                break
            self._send(slot, item)
        self._fill()

    def _slot_for_suspect(self) -> WorkerSlot | None:
        for slot in self._slots:
            if slot.process.alive and not slot.running and not slot.abandoned and (self._plan.single or not slot.used):
                return slot
        return None

    def _slot_with_room(self) -> WorkerSlot | None:
        best: WorkerSlot | None = None
        for slot in self._slots:
            free = slot.process.alive and not slot.isolated and len(slot.running) < slot.room
            if free and (best is None or len(slot.running) < len(best.running)):
                best = slot
        return best

    def _send(self, slot: WorkerSlot, item: WorkItem) -> None:
        item.sent = self._loop.time()
        item.log = BoundedLog()
        item.late = False
        item.unshared = self._is_serial(slot) or (item.isolated and not slot.used)
        method, params = item.work.request()
        self._add_meta(slot, item, method, params)
        try:
            on_answer = functools.partial(self._answered, slot, item)
            slot.process.request(method, params, on_answer, max_bytes=self._plan.max_line_bytes, log=item.log)
        except RpcError as error:  # nested too deep, or too long with rows and trajectories filled in
            item.work.reject(error)
            return
        self._running += 1
        slot.running.add(item)
        slot.used = True
        slot.isolated = item.isolated
        item.slot = slot
        if item.work.limit_s is None:
            return
        if slot.heartbeat is not None:
            slot.heartbeat.start(item.work.limit_s)
            item.blocked_mark = slot.heartbeat.blocked_s
        item.timer = self._loop.call_later(item.work.limit_s, self._deadline_passed, slot, item)

    def _add_meta(self, slot: WorkerSlot, item: WorkItem, method: str, params: dict[str, Any]) -> None:
        meta: dict[str, Any] = {"call_id": item.call_id} if self._plan.cancels else {}
        if slot.restore is not None:
            if method == "make_reflective_dataset" and params.get("adapter_state") is None:
                params["adapter_state"] = slot.restore
            elif method == "evaluate":
                meta["adapter_state"] = slot.restore
            slot.restore = None
        if meta:
            params["_meta"] = {**params.get("_meta", {}), **meta}

    # -- from a process to a call ------------------------------------------------------------------------------------

    def _answered(self, slot: WorkerSlot, item: WorkItem, message: dict[str, Any]) -> None:
        if item.slot is not slot:
            return  # a late response of an abandoned process: the example runs elsewhere
        self._release(slot, item)
        result = message.get("result")
        if isinstance(result, dict) and "adapter_state" in self.capabilities:
            self._state = result.get("adapter_state", self._state)
        ran_over = self._ran_over(slot, item, message)
        late = ran_over or any(timeouts(message))
        evidence = self._timeout_evidence(slot, item) if late else None
        requeue = late and evidence is None and not item.abandoned
        stale = late and self._plan.fresh_after_deadline and not slot.running
        # The next suspect needs a new process; a single process is replaced only if earlier work may be the cause.
        used_up = item.isolated and requeue if self._plan.single else item.isolated or stale
        if requeue:
            item.work.discard(message)
            item.isolated = True
            self._scheduler.add_suspect(item)
        elif not item.abandoned:
            seconds, log = self._seconds(item), item.log.text
            item.work.answered(message, late=ran_over, evidence=evidence, seconds=seconds, log=log)
        if used_up and slot in self._slots:
            self._retire(slot, gracefully=not (stale or requeue))
        else:
            self._release_if_unneeded(slot)
        self._dispatch()

    def _is_serial(self, slot: WorkerSlot) -> bool:
        """Report whether a request has the process to itself: it takes one at a time, and has ended it on response."""
        return slot.room == 1 and not self._plan.cancels

    def _ran_over(self, slot: WorkerSlot, item: WorkItem, message: dict[str, Any]) -> bool:
        """Report whether an answered request took longer than its limit: by the program's own clock, if it states that.

        A server without processor time reads late what was answered in time, and what was late before its own timer.
        """
        own_s = stated_seconds(message, cancelled=item.late and self._plan.cancels)
        if own_s is None or item.work.limit_s is None:
            return item.late
        allowance_s = None if item.unshared else self._allowance_s(slot, item)
        return min(own_s, self._loop.time() - item.sent) > item.work.limit_s + (allowance_s or 0.0)

    def _timeout_evidence(self, slot: WorkerSlot, item: WorkItem) -> str | None:
        """Return why a time-out is the request's own; None if its process may have blocked it."""
        if item.unshared:
            return _ALONE
        return None if self._allowance_s(slot, item) is None else _RESPONSIVE

    def _allowance_s(self, slot: WorkerSlot, item: WorkItem) -> float | None:
        """Return how long its process blocked it; None if that was too long, or cannot be measured."""
        if slot.heartbeat is None or item.work.limit_s is None:
            return None
        blocked_s = slot.heartbeat.blocked_s - item.blocked_mark
        return blocked_s if blocked_s <= _MAX_BLOCKED_SHARE * item.work.limit_s else None

    def _deadline_passed(self, slot: WorkerSlot, item: WorkItem) -> None:
        """Cancel the example; the process may still end it for a moment."""
        limit_s = item.work.limit_s or 0.0
        allowance_s = None if item.unshared else self._allowance_s(slot, item)
        left_s = limit_s + (allowance_s or 0.0) - (self._loop.time() - item.sent)
        if left_s > _SOON_S:
            item.timer = self._loop.call_later(left_s, self._deadline_passed, slot, item)
            return
        item.late = True
        if self._plan.cancels:
            self._send_cancel(slot, item)
        item.timer = self._loop.call_later(GRACE_S, self._kill_overdue, slot, item)

    def _kill_overdue(self, slot: WorkerSlot, item: WorkItem) -> None:
        evidence = self._timeout_evidence(slot, item)
        ran = self._remove(slot)
        if evidence is not None and not item.abandoned:
            ran.remove(item)
            slot.process.collect_output()
            item.work.timed_out(evidence, self._seconds(item), item.log.text)
        for one in reversed(ran):
            one.isolated = one.isolated or one.late  # blocked by another or too slow itself: isolation will show
            self._scheduler.requeue(one)
        self._factory.end(slot.process, graceful=False)
        self._dispatch()

    def _process_died(self, slot: WorkerSlot, how: Exit) -> None:
        if slot not in self._slots:
            return  # its end was requested
        victims = self._remove(slot)
        if not slot.used and not how.parent_died:
            # It starts but ends at once: pause before the next start.
            self._factory.failed(ProgramFailed(f"the program's process {how} before its first request", stage="start"))
        for item in victims:
            was_alone = item.exclusive or (item.died and not self._running and not how.parent_died)
            if was_alone:
                item.work.died(how, self._seconds(item), item.log.text)
            else:  # others may have used up the memory that they share
                item.isolated, item.exclusive, item.died = True, how.parent_died or item.died, True
                self._scheduler.add_suspect(item)
        self._dispatch()

    def _release(self, slot: WorkerSlot, item: WorkItem) -> None:
        if item.timer is not None:
            item.timer.cancel()
            item.timer = None
        if item in slot.running:
            slot.running.remove(item)
            self._running -= 1
        slot.abandoned.discard(item)
        item.slot = None
        if slot.heartbeat is not None and not slot.running:
            slot.heartbeat.stop()

    def _seconds(self, item: WorkItem) -> float:
        return round(self._loop.time() - item.sent, 6)

    # -- giving up ---------------------------------------------------------------------------------------------------

    def _abandon(self, items: Sequence[WorkItem]) -> None:
        """Free the room of items that no call waits for."""
        for item in items:
            item.abandoned = True
            slot = item.slot
            if slot is None or item not in slot.running:
                continue
            slot.running.remove(item)
            self._running -= 1
            slot.abandoned.add(item)  # its deadline still ends a process that never answers
            if self._plan.cancels:
                self._send_cancel(slot, item)
        self._scheduler.drop_abandoned()
        for slot in {item.slot for item in items if item.slot is not None}:
            self._release_if_unneeded(slot)
        self._dispatch()

    def _send_cancel(self, slot: WorkerSlot, item: WorkItem) -> None:
        slot.process.request("cancel", {"call_id": item.call_id}, lambda _: None)

    def _release_if_unneeded(self, slot: WorkerSlot) -> None:
        """End a process that runs abandoned items only, or that is one too many."""
        if slot not in self._slots or slot.running:
            return
        slot.isolated = False
        only_abandoned = bool(slot.abandoned) and not self._plan.cancels
        too_many = slot.used and not slot.abandoned and len(self._slots) > self._wanted()
        if only_abandoned or too_many:
            self._retire(slot)

    # -- processes ---------------------------------------------------------------------------------------------------

    def _wanted(self) -> int:
        if self._plan.single:
            return self._plan.size
        isolated = self._scheduler.suspects + sum(slot.isolated for slot in self._slots)
        return self._plan.size + min(isolated, _EXTRA_PROCESSES)

    def _fill(self) -> None:
        wanted = self._wanted()
        if wanted == self._plan.size:  # no example needs a process to itself
            wanted = min(wanted, max(self._plan.size_at_rest, self._running + self._scheduler.queued))
        self._factory.ensure_starting(wanted - len(self._slots))

    def _process_started(self, started: StartedProcess) -> None:
        self._add(started)
        self._dispatch()

    def _add(self, started: StartedProcess) -> None:
        limit_s = self.limits.example_timeout_s or self._plan.call_timeout_s
        heartbeat = ProcessHeartbeat(started.process, limit_s) if self._plan.cancels else None
        slot = WorkerSlot(started, self._state, heartbeat)
        self._slots.append(slot)
        started.process.exited.add_done_callback(lambda exited: self._process_died(slot, exited.result()))

    def _start_failed(self, error: ProgramFailed) -> None:
        if not self.ready:
            self._refuse_all(error)

    def _refuse_all(self, error: ProgramFailed) -> None:
        """Fail every call that waits or runs: no process is available."""
        running = [item for slot in self._slots for item in slot.running]
        for item in (*self._scheduler.waiting(), *running):
            # A copy for each call, as raising adds to its traceback.
            item.work.reject(copy(error))

    def _remove(self, slot: WorkerSlot) -> list[WorkItem]:
        self._slots.remove(slot)
        running = sorted(slot.running, key=lambda item: item.sent)
        for item in (*running, *slot.abandoned):
            self._release(slot, item)
        return running

    def _retire(self, slot: WorkerSlot, *, gracefully: bool = True) -> None:
        busy = bool(slot.running or slot.abandoned)
        self._remove(slot)
        self._factory.end(slot.process, graceful=gracefully and not busy)


def _rows(batch: Sequence[Example], *, untyped: bool = False) -> list[dict[str, Any]]:
    """Return the rows for the program. `untyped`: it reads those that are."""
    return [
        {"id": example.id, "data": example.data, **({"untyped": True} if untyped and example.untyped else {})}
        for example in batch
    ]


def _closing() -> ProgramFailed:
    return ProgramFailed("the server is shutting down", stage="close", retryable=True)
