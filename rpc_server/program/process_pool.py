"""The pool of program processes: requests of calls, their time limits, and what runs again after a hang or a death."""

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from copy import copy
from typing import Any

from protocol import Candidate, CandidateItem, Example, ProgramInfo
from protocol.errors import ProgramFailed
from rpc_server.program.child_process import Exit
from rpc_server.program.launcher import Launcher
from rpc_server.program.process_answers import Attempt, result_of_method, results_of_examples
from rpc_server.program.process_factory import Worker
from rpc_server.program.process_output import OpenRequest
from rpc_server.program.program import PROGRAM_CAPABILITIES, ResultDict, combined_limits
from rpc_server.program.scheduler import Isolation, Scheduler, Turns
from rpc_server.settings.settings import Settings

GRACE_S = 0.75
"""Seconds after its limit in which a process may still answer a request, before it is ended."""

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
        self, launcher: Launcher, first: Worker, info: ProgramInfo, settings: Settings, *, size: int, at_rest: int
    ) -> None:
        """Start the other processes; `size` and `at_rest`: see `Scheduler`."""
        described = first.discovery
        own = described.limits.model_copy(update={"max_concurrency": size * first.room})
        self.info = info
        self.capabilities = PROGRAM_CAPABILITIES & {*described.capabilities}
        self.limits = combined_limits(own, settings)
        offered = described.datasets if "datasets" in described.capabilities else {}
        self.splits: Mapping[str, int] = {split: held.size for split, held in offered.items()}
        self._is_single = "refs" in self.capabilities  # one process, kept as long as it lives for its memory
        self._cancels = "cancel" in described.capabilities
        self._is_serial = first.room == 1 and not self._cancels  # a process has ended a request when it answers
        self._max_line_bytes = described.limits.max_request_bytes if settings.is_a == "command" else None
        self._call_timeout_s = settings.call_timeout_s
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._calls: set[asyncio.Future[None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self.repeats = 0
        """Requests sent again."""
        self.repeated_s = 0.0
        """Seconds that their earlier attempts took."""
        self._unreported = 0
        self._scheduler = Scheduler(
            launcher,
            first,
            size=size,
            at_rest=at_rest,
            most_requests=self.limits.max_concurrency,
            is_single=self._is_single,
            start_timeout_s=settings.start_timeout_s,
            on_unavailable=self._refuse_all,
        )

    @property
    def ready(self) -> bool:
        """False after two failed starts in a row, until a process starts."""
        return not self._closed and self._scheduler.unavailable is None

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
        # With room for each of the call's examples, as reflection may take as long as they do.
        rows = (params.get("eval_batch") or {}).get("batch") or ()
        limit_s = max(self._call_timeout_s, (self.limits.example_timeout_s or 0) * len(rows))
        result: dict[str, Any] = {}

        async def run(_: int) -> None:
            result.update(result_of_method(await self._run(deque(), method, params, limit_s), method))

        await self._run_all(run, [0])
        return result

    async def close(self) -> None:
        """End all processes; reject what waits."""
        self._closed = True
        self._refuse_all(_closing())
        await self._scheduler.close()

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
        most_bytes = self.limits.max_result_bytes
        assert most_bytes is not None, "`limits.combined_limits` sets it"  # noqa: S101
        limit_s = self.limits.example_timeout_s
        if timeout_s is not None:
            limit_s = min(timeout_s, limit_s or timeout_s)
            shared["_meta"] = {**shared.get("_meta", {}), "example_timeout_s": limit_s}
        at_once = size if whole or self.limits.whole_batches else 1
        piece_limit_s = None if limit_s is None else limit_s * at_once
        turns: Turns = deque()

        async def run(start: int) -> None:
            own = {name: values[start : start + at_once] for name, values in each.items()}
            attempt = await self._run(turns, method, {**shared, **own}, piece_limit_s)
            results = results_of_examples(attempt, at_once, stage=method, most_bytes=most_bytes)
            for position, result in enumerate(results, start):
                on_result(position, result)

        await self._run_all(run, range(0, size, at_once))

    async def _run_all(self, run: Callable[[int], Coroutine[Any, Any, None]], starts: Sequence[int]) -> None:
        """Run the requests of a call, each in a task, until all have ended, one fails, or the pool refuses them."""
        if self._closed:
            raise _closing()
        if (unavailable := self._scheduler.unavailable) is not None:
            raise copy(unavailable)
        done: asyncio.Future[None] = self._loop.create_future()
        left = len(starts)

        async def run_one(start: int) -> None:
            nonlocal left
            try:
                await run(start)
            except Exception as error:  # noqa: BLE001  # raised to the caller, below
                if not done.done():
                    done.set_exception(error)
            left -= 1
            if not left and not done.done():
                done.set_result(None)

        tasks = [self._loop.create_task(run_one(start)) for start in starts]
        self._calls.add(done)
        try:
            await done
        finally:
            self._calls.discard(done)
            for task in tasks:
                if task.cancel():  # it lasts until its process has ended the request
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)

    def _refuse_all(self, error: ProgramFailed) -> None:
        """Fail every call that waits or runs: no process is available."""
        for done in self._calls:
            if not done.done():
                done.set_exception(copy(error))  # a copy for each call, as raising adds to its traceback

    # -- a request ---------------------------------------------------------------------------------------------------

    async def _run(self, turns: Turns, method: str, params: Mapping[str, Any], limit_s: float | None) -> Attempt:
        """Run a request until an attempt of it counts."""
        isolation, parent_died = Isolation.NONE, False
        discarded: list[dict[str, Any]] = []
        while True:
            worker = await self._scheduler.take(turns, isolation)
            alone = self._is_serial or (isolation > Isolation.NONE and worker.received == 1)
            attempt = Attempt(limit_s, f"p{next(self._numbers)}", discarded, alone=alone)
            try:
                answer = await self._ask(worker, attempt, method, params)
                if not isinstance(answer, Exit):
                    late = attempt.answered(answer, cancels=self._cancels)
                    # A single process is replaced only if what ran before may be the cause.
                    worker.spoiled |= late and (not self._is_single or (isolation > Isolation.NONE and not alone))
                    if alone or not late:
                        return attempt
                    discarded.append(answer)
                    isolation = max(isolation, Isolation.PROCESS)
                    why = "it was late in a process that others use"
                elif self._closed:
                    raise _closing()
                elif answer.given_up:
                    if alone and attempt.late:
                        attempt.timed_out(worker.process.unanswered())
                        return attempt
                    isolation = max(isolation, Isolation.PROCESS)
                    why = "their process did not end one that was late"
                elif isolation is Isolation.POOL and (parent_died or not answer.parent_died):
                    attempt.died(str(answer), worker.process.unanswered())
                    return attempt
                else:
                    parent_died = isolation is Isolation.POOL  # perhaps of what earlier attempts left running
                    isolation = Isolation(min(isolation + 1, Isolation.POOL))
                    why = f"their process {answer}"
            finally:
                self._scheduler.leave(worker)
            self._count_repeat(attempt, why)

    async def _ask(
        self, worker: Worker, attempt: Attempt, method: str, params: Mapping[str, Any]
    ) -> dict[str, Any] | Exit:
        """Send a request; cancel it at its limit, and end its process if it is not answered within the grace period."""
        params = self._with_meta(worker, attempt, method, params)
        request = worker.process.ask(method, params, max_bytes=self._max_line_bytes, log=attempt.log)
        if attempt.limit_s is not None:
            attempt.timer = self._loop.call_later(attempt.limit_s, self._limit_reached, worker, attempt)
        try:
            result = await request.answer
        except asyncio.CancelledError:  # no call waits for it
            worker.spoiled |= not await self._has_ended(worker, attempt, request)
            raise
        finally:
            if attempt.timer is not None:
                attempt.timer.cancel()
        if not isinstance(result, Exit) and "adapter_state" in self.capabilities:
            given = result.get("result")
            if isinstance(given, dict) and "adapter_state" in given:
                self._scheduler.adapter_state = given["adapter_state"]
        return result

    def _limit_reached(self, worker: Worker, attempt: Attempt) -> None:
        attempt.late = True
        self._cancel(worker, attempt)
        attempt.timer = self._loop.call_later(GRACE_S, self._end_overdue, worker)

    def _end_overdue(self, worker: Worker) -> None:
        worker.process.collect_output()
        self._scheduler.end(worker, graceful=False)

    def _cancel(self, worker: Worker, attempt: Attempt) -> None:
        if self._cancels:
            worker.process.ask("cancel", {"call_id": attempt.call_id})

    async def _has_ended(self, worker: Worker, attempt: Attempt, request: OpenRequest) -> bool:
        """Cancel an attempt for which no call waits; return whether it has ended, or does within the grace period."""
        if self._cancels and request.answer.cancelled():
            request.answer = self._loop.create_future()  # in place of the one that was cancelled with its task
            self._cancel(worker, attempt)
            await asyncio.wait({request.answer}, timeout=GRACE_S)
        return request.answer.done() and not request.answer.cancelled()

    def _with_meta(self, worker: Worker, attempt: Attempt, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the params with what the process needs to cancel the request, and the state of the one before."""
        given, meta = dict(params), {"call_id": attempt.call_id} if self._cancels else {}
        if worker.restore is not None:
            if method == "make_reflective_dataset" and params.get("adapter_state") is None:
                given["adapter_state"] = worker.restore
            elif method == "evaluate":
                meta["adapter_state"] = worker.restore
            worker.restore = None
        if meta:
            given["_meta"] = {**given.get("_meta", {}), **meta}
        return given

    def _count_repeat(self, attempt: Attempt, why: str) -> None:
        """Count a request that runs again. Those of one cause are reported together."""
        self.repeats += 1
        self.repeated_s += attempt.seconds
        self._unreported += 1
        if self._unreported == 1:
            self._loop.call_soon(self._report_repeats, why)

    def _report_repeats(self, why: str) -> None:
        again, total, seconds = self._unreported, self.repeats, self.repeated_s
        self._unreported = 0
        message = "%d requests run again, as %s; since the start: %d, %.0f s of work lost"
        logger.warning(message, again, why, total, seconds)


def _rows(batch: Sequence[Example], *, untyped: bool = False) -> list[dict[str, Any]]:
    """Return the rows for the program. `untyped`: it reads those that are."""
    return [
        {"id": example.id, "data": example.data, **({"untyped": True} if untyped and example.untyped else {})}
        for example in batch
    ]


def _closing() -> ProgramFailed:
    return ProgramFailed("the server is shutting down", stage="close", retryable=True)
