"""The pool of program processes: requests of calls, their time limits, and what runs again after a hang or a death."""

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

from protocol import Candidate, CandidateItem, Example, ProgramInfo
from rpc_server.program.checked_answers import Attempt, result_of_method, results_of_examples
from rpc_server.program.child_process import Exit
from rpc_server.program.launcher import Launcher
from rpc_server.program.program import PROGRAM_CAPABILITIES, ResultDict, combined_limits
from rpc_server.program.scheduler import Scheduler, Turns, Worker
from rpc_server.settings import Settings

GRACE_S = 0.75
"""Seconds after its limit in which a process may still answer a request, before it is ended."""

logger = logging.getLogger(__name__)


class Pool:
    """A `Program` over processes of one launcher.

    A limit counts from the moment a request is sent to a process. At its limit it is cancelled. If it is answered
    within a grace period, it runs again, alone in a process. If not, its process is ended, and all of its requests run
    again, each alone in a process, as do those of a process that died. What is late or dies then is the cause, and so
    is what is late in a process that takes one request at a time.
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
        self._numbers = itertools.count(1)
        self._last_chance = asyncio.Lock()
        self._scheduler = Scheduler(
            launcher,
            first,
            size=size,
            at_rest=at_rest,
            most_requests=self.limits.max_concurrency,
            is_single=self._is_single,
            start_timeout_s=settings.start_timeout_s,
        )

    @property
    def ready(self) -> bool:
        """False after two failed starts in a row, until a process starts."""
        return self._scheduler.unavailable is None

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
        return result_of_method(await self._run(deque(), method, params, limit_s), method)

    async def close(self) -> None:
        """End all processes; reject what waits."""
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
            results = results_of_examples(attempt, at_once, stage=method)
            for position, result in enumerate(results, start):
                on_result(position, result)

        try:
            async with asyncio.TaskGroup() as tasks:
                for start in range(0, size, at_once):
                    tasks.create_task(run(start))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None

    # -- a request ---------------------------------------------------------------------------------------------------

    async def _run(self, turns: Turns, method: str, params: Mapping[str, Any], limit_s: float | None) -> Attempt:
        """Run a request until an attempt of it counts."""
        discarded: list[dict[str, Any]] = []
        attempt = await self._attempt(turns, method, params, limit_s, discarded)
        is_in_time = attempt.exit is None and not attempt.is_late
        if is_in_time or (attempt.is_late and self._is_serial):
            return attempt
        if attempt.exit is None:
            discarded.append(attempt.message)
            logger.warning("a request that was late beside others runs again, alone")
        attempt = await self._attempt(None, method, params, limit_s, discarded)
        if attempt.exit is not None and attempt.exit.parent_died:  # perhaps because of what ran alone beside it
            async with self._last_chance:
                attempt = await self._attempt(None, method, params, limit_s, discarded)
        return attempt

    async def _attempt(
        self,
        turns: Turns | None,
        method: str,
        params: Mapping[str, Any],
        limit_s: float | None,
        discarded: list[dict[str, Any]],
    ) -> Attempt:
        """Send a request once. `turns`: of its call; None to run it alone. `discarded`: answers that do not count."""
        worker = await self._scheduler.take(turns)
        attempt = Attempt(limit_s, f"p{next(self._numbers)}", discarded)
        try:
            answer = await self._ask(worker, attempt, method, params)
            if isinstance(answer, Exit):
                if self._scheduler.closing is not None:
                    raise copy(self._scheduler.closing)
                attempt.ended(answer, worker.process.unanswered())
            else:
                attempt.answered(answer, cancels=self._cancels)
                worker.spoiled |= attempt.is_late and not self._is_single
        finally:
            self._scheduler.leave(worker)
        return attempt

    async def _ask(
        self, worker: Worker, attempt: Attempt, method: str, params: Mapping[str, Any]
    ) -> dict[str, Any] | Exit:
        """Send a request; cancel it at its limit, and end its process if it is not answered within the grace period."""
        params = self._with_meta(worker, attempt, method, params)
        request = worker.process.ask(method, params, max_bytes=self._max_line_bytes, log=attempt.log)
        try:
            done, _ = await asyncio.wait({request.answer}, timeout=attempt.limit_s)
            if not done:
                attempt.is_overdue = True
                self._cancel(worker, attempt)
                done, _ = await asyncio.wait({request.answer}, timeout=GRACE_S)
            if not done:
                worker.process.collect_output()
                if worker.rows > 1:
                    others = "a process did not end a request that was late: its requests run again (%d)"
                    logger.warning(others, worker.rows)
                self._scheduler.end(worker, graceful=False)
            result = await asyncio.shield(request.answer)
        except asyncio.CancelledError:  # no call waits for it
            if self._cancels:
                self._cancel(worker, attempt)
                await asyncio.wait({request.answer}, timeout=GRACE_S)
            worker.spoiled |= not request.answer.done()
            raise
        if not isinstance(result, Exit) and "adapter_state" in self.capabilities:
            given = result.get("result")
            if isinstance(given, dict) and "adapter_state" in given:
                self._scheduler.adapter_state = given["adapter_state"]
        return result

    def _cancel(self, worker: Worker, attempt: Attempt) -> None:
        if self._cancels:
            worker.process.ask("cancel", {"call_id": attempt.call_id})

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


def _rows(batch: Sequence[Example], *, untyped: bool = False) -> list[dict[str, Any]]:
    """Return the rows for the program. `untyped`: it reads those that are."""
    return [
        {"id": example.id, "data": example.data, **({"untyped": True} if untyped and example.untyped else {})}
        for example in batch
    ]
