"""Calls: their jobs and admission, and those with a `call_id`, which run once, and whose results are kept a while."""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from typing import Literal

import orjson

from protocol import EvaluateParams, Example, JsonValue, Meta, PendingCall, Progress
from protocol.errors import (
    CallCancelled,
    CallIdConflict,
    CallNotFound,
    InternalError,
    LimitExceeded,
    Overloaded,
    RpcError,
)
from rpc_server import wire
from rpc_server.methods.trace_store import TrajectoryRefs
from rpc_server.program.checked_answers import failure, written_by
from rpc_server.program.process import report_output
from rpc_server.program.program import Program, ResultDict
from rpc_server.settings import Settings


class CallJob(ABC):
    """A checked unit of work that may start, of `total` examples, of which `left` have not ended.

    `message`: its present step, in a few words.
    """

    def __init__(self, total: int = 1, *, left: int | None = None) -> None:
        self._total = total
        self.left = total if left is None else left
        self.message: str | None = None

    @property
    def progress(self) -> Progress:
        """Its progress, in examples."""
        return Progress(done=self._total - self.left, total=self._total, message=self.message)

    @property
    def finished_results(self) -> list[dict[str, JsonValue]] | None:
        """The results of finished examples with their `index`; None for a job without examples of its own."""
        return None

    @abstractmethod
    async def run(self) -> JsonValue:
        """Run it and return its result; `left` decreases as each example ends. Called once."""

    def cancelled_result(self) -> JsonValue:
        """Return the result of a cancelled job; raises `CallCancelled` if there is none."""
        raise CallCancelled


_NO_ROOM = orjson.Fragment(b"null")
"""In place of a result that would make the answer too large."""


class EvaluateJob(CallJob):
    """A candidate on a batch; if it is cancelled, finished examples keep their results.

    `batch`: its examples with their data. `hidden`: the data of examples that the client cannot have, None for others.
    """

    def __init__(
        self,
        program: Program,
        refs: TrajectoryRefs,
        request: EvaluateParams,
        batch: Sequence[Example],
        hidden: Sequence[JsonValue],
        *,
        max_result_bytes: int,
        max_bytes: int,
    ) -> None:
        super().__init__(len(batch))
        self._program = program
        self._refs = refs
        self._request = request
        self._meta = request.meta or Meta()
        self._batch = batch
        self._hidden = hidden
        self._results: list[orjson.Fragment | None] = [None] * len(batch)
        self._max_result_bytes = max_result_bytes
        self._max_bytes = max_bytes
        self._bytes = 0
        self._started = time.monotonic()

    @property
    def finished_results(self) -> list[dict[str, JsonValue]]:
        """The results so far, without those for which there was no room."""
        return [
            {"index": index, "result": result}
            for index, result in enumerate(self._results)
            if result is not None and result is not _NO_ROOM
        ]

    async def run(self) -> JsonValue:
        """Return the results in the batch's order; raises `LimitExceeded` if they are too large together."""
        request, group = self._request, self._meta.group

        def keep(position: int, result: ResultDict) -> None:
            report_output(written_by(result), _source(self._meta, self._batch[position]))
            if request.capture_traces:
                result = self._refs.outgoing(result, group, self._hidden[position])
            self._results[position] = self._serialized(result)
            self.left -= 1

        await self._program.evaluate(
            request.candidate,
            self._batch,
            capture_traces=request.capture_traces,
            items=request.items,
            timeout_s=self._meta.example_timeout_s,
            group=group,
            on_result=keep,
        )
        if None in self._results:
            raise RuntimeError("the program ended an evaluation without a result for every example")
        if self._bytes > self._max_bytes:
            raise answer_too_large(self._bytes, self._max_bytes, len(self._batch))
        return {"results": self._results}

    def _serialized(self, result: ResultDict) -> orjson.Fragment:
        """Serialize the result, or a failure if it is too large; null once all together are too large."""
        written = wire.write_to_keep(result)
        if len(written) > self._max_result_bytes and result["status"] not in ("ok", "rollout"):
            written = wire.write_to_keep({**result, "output": None})  # the failure matters more
        if len(written) > self._max_result_bytes:
            written = wire.write(_without_output(result, self._max_result_bytes))
        self._bytes += len(written)
        return orjson.Fragment(written) if self._bytes <= self._max_bytes else _NO_ROOM

    def cancelled_result(self) -> JsonValue:
        """Return the results so far, the others `cancelled`."""
        seconds = time.monotonic() - self._started
        cancelled = {"status": "cancelled", "score": None, "output": None, "seconds": seconds}
        return {"results": [cancelled if result is None else result for result in self._results]}


_KEPT_WHERE_TOO_LARGE = ("trajectory_ref", "usage", "metric_calls", "hosts")


def answer_too_large(size: int, most: int, examples: int) -> LimitExceeded:
    """Return the error of a call whose result is too large as a whole."""
    message = f"answer of {size} bytes for {examples} examples, more than {most} accepted: evaluate fewer at once"
    return LimitExceeded(message, limit="answer_bytes", allowed=most, given=size)


def _without_output(result: ResultDict, most: int) -> ResultDict:
    """Return the failure for a result of more than `most` bytes. Its trajectory stays where it is kept."""
    size = len(wire.write(result.get("output")))
    size = size if size > most else len(wire.write(result))
    kept: ResultDict = {name: result[name] for name in _KEPT_WHERE_TOO_LARGE if name in result}
    log = written_by(result)
    log = log if len(log) <= most else ""
    message = f"output of {size} bytes, more than {most} accepted"
    return {**failure("program_error", "output_too_large", message, result["seconds"], log), **kept}


class MethodJob(CallJob):
    """Any other method, which is answered as a whole by `work`; it gets the job, whose `message` it may set."""

    def __init__(self, work: Callable[[CallJob], Awaitable[JsonValue]]) -> None:
        super().__init__()
        self._work = work

    async def run(self) -> JsonValue:
        """Return the answer; raises the errors of the work."""
        answer = await self._work(self)
        self.left = 0
        return answer


_CALL_ID_SHOWN = 8


def _source(meta: Meta, example: Example) -> str:
    """Return the call and the example, to print before what the program wrote."""
    return f"{meta.call_id[:_CALL_ID_SHOWN]} {example.id}" if meta.call_id else example.id


_SCORE_FIELDS = frozenset(
    {"status", "score", "feedback", "component_feedback", "objective_scores", "error", "usage", "seconds"},
)
"""The fields of a scored result that come from the scoring; all others are kept as they came."""

_WAITING = ("rollout", "ok")


class ScoreJob(CallJob):
    """Scores results that wait for a score; failures are returned unchanged."""

    def __init__(
        self, program: Program, batch: Sequence[Example], results: Sequence[ResultDict], meta: Meta | None
    ) -> None:
        self._positions = [at for at, result in enumerate(results) if result["status"] in _WAITING]
        super().__init__(len(results), left=len(self._positions))
        self._program = program
        self._results = list(results)
        self._meta = meta or Meta()
        self._batch = [batch[at] for at in self._positions]

    async def run(self) -> JsonValue:
        """Return the results, in the order they came."""

        def keep(index: int, scored: ResultDict) -> None:
            report_output(written_by(scored), _source(self._meta, self._batch[index]))
            at = self._positions[index]
            self._results[at] = _merge_score(self._results[at], scored)
            self.left -= 1

        waiting = [_without_log(self._results[at]) for at in self._positions]  # the program may give a log of its own
        await self._program.score(self._batch, waiting, timeout_s=self._meta.example_timeout_s, on_result=keep)
        return {"results": self._results}


def _without_log(result: ResultDict) -> ResultDict:
    return {name: value for name, value in result.items() if name != "log"}


def _merge_score(result: ResultDict, scored: ResultDict) -> ResultDict:
    if scored["status"] == "rollout":
        error = {"type": "invalid_result", "message": "score answered a result without a score"}
        scored = {"status": "program_error", "score": None, "error": error, "seconds": scored["seconds"]}
    kept = {name: value for name, value in result.items() if name not in _SCORE_FIELDS and value is not None}
    scoring = {name: value for name, value in scored.items() if name in _SCORE_FIELDS}
    log = kept.pop("log", "") + written_by(scored)
    if log and scoring.get("error"):
        scoring["error"] = {**scoring["error"], "log": log}
    elif log:
        scoring["log"] = log
    return {**scoring, "output": None, **kept}


_RETRY_AFTER_S = 1.0

_ENTRY_BYTES = 1024
"""Approximate bytes of a kept result beyond its content, so that many small ones are bounded too."""

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class _RecordedCall:
    """One call. `task` is None exactly if `outcome` is set: the answer as sent on the wire, or the error.

    Params and results as objects are not kept after the end: they are many times the counted size.
    """

    job: CallJob | None
    task: asyncio.Task[JsonValue] | None
    request: bytes
    watchers: int = 0
    abandon_timer: asyncio.TimerHandle | None = None
    outcome: bytes | RpcError | None = None
    size: int = 0
    requested_at: float = 0.0
    collected: bool = False


class CallLedger:
    """Every call that runs, and those that this instance knows by their `call_id`.

    A call with an id survives its connection; it is cancelled after `abandon_after_s` without a request. Its result is
    kept for `keep_answers_s` after the last request, and evicted earlier, least recently requested first, while all
    results exceed `max_answer_bytes`; the newest always stays, or a client would repeat its work forever.
    """

    def __init__(self, settings: Settings, *, most_examples: int) -> None:
        """`most_examples`: those of running calls that may run and wait at once."""
        self._settings = settings
        self._most_examples = most_examples
        self._jobs: set[CallJob] = set()
        self._running: dict[str, _RecordedCall] = {}
        self._finished: OrderedDict[str, _RecordedCall] = OrderedDict()
        self._bytes = 0
        self._changed = asyncio.Event()
        self.draining = False

    async def run(self, job: CallJob) -> JsonValue:
        """Run a call without an id; raises as `submit`."""
        self._admit(job)
        try:
            return await job.run()
        finally:
            self._release(job)

    async def submit(
        self, call_id: str, request: bytes, start: Callable[[], CallJob], wait_s: float | None
    ) -> JsonValue:
        """Return the result of the call, started now if it is new; `pending` after `wait_s` seconds (None: never).

        `request`: a digest of the request. `start` checks and prepares; its errors are not kept.

        Raises:
            CallIdConflict: the id belongs to another request.
            Overloaded: there is no room, or the server is shutting down.
            RpcError: the call's own error.
        """
        call = self._find(call_id)
        if call is None:
            call = self._start(call_id, request, start())
        elif call.request != request:
            raise CallIdConflict(call_id=call_id)
        return await self._watch(call_id, call, wait_s)

    async def get(self, call_id: str, wait_s: float, *, partial: bool) -> JsonValue:
        """Return the result of a known call, else `pending`, if `partial` with its finished results.

        Raises `CallNotFound` or as `submit`.
        """
        return await self._watch(call_id, self._known(call_id), wait_s, partial=partial)

    async def cancel(self, call_id: str) -> Literal["cancelled", "finished"]:
        """Cancel a call; return when it has ended. Raises `CallNotFound`."""
        call = self._known(call_id)
        task = call.task
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
        # The client that cancels will not fetch the result, so that draining need not wait for it.
        call.collected = True
        self._changed.set()
        return "cancelled" if task is not None and task.cancelled() else "finished"

    async def drain(self, timeout_s: float) -> None:
        """Refuse new calls; return when nothing runs and every result was collected, or after this time."""
        self.draining = True
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._jobs or any(not call.collected for call in self._finished.values()):
                    self._changed.clear()
                    await self._changed.wait()

    async def close(self) -> None:
        """Cancel what is running."""
        tasks = [call.task for call in self._running.values() if call.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _admit(self, job: CallJob) -> None:
        if self.draining:
            raise Overloaded("shutting down", retry_after_s=_RETRY_AFTER_S)
        examples = sum(each.left for each in self._jobs)
        # One larger than all the room is admitted when nothing else runs, as it could never start otherwise.
        if examples and examples + job.left > self._most_examples:
            raise Overloaded(retry_after_s=_RETRY_AFTER_S)
        self._jobs.add(job)

    def _release(self, job: CallJob) -> None:
        self._jobs.discard(job)
        self._changed.set()

    def _known(self, call_id: str) -> _RecordedCall:
        call = self._find(call_id)
        if call is None:
            raise CallNotFound(call_id=call_id)
        return call

    def _find(self, call_id: str) -> _RecordedCall | None:
        self._evict()
        call = self._finished.get(call_id)
        if call is None:
            return self._running.get(call_id)
        call.requested_at = time.monotonic()
        self._finished.move_to_end(call_id)
        return call

    def _start(self, call_id: str, request: bytes, job: CallJob) -> _RecordedCall:
        self._admit(job)
        task = asyncio.create_task(job.run())
        call = self._running[call_id] = _RecordedCall(job, task, request)
        # The first callback, so that later ones find the call finished.
        task.add_done_callback(lambda task: self._finish(call_id, call, job, task))
        return call

    async def _watch(
        self, call_id: str, call: _RecordedCall, wait_s: float | None, *, partial: bool = False
    ) -> JsonValue:
        call.watchers += 1
        if call.abandon_timer is not None:
            call.abandon_timer.cancel()
            call.abandon_timer = None
        try:
            if call.task is not None:
                await asyncio.wait({call.task}, timeout=wait_s)
        finally:
            call.watchers -= 1
            if not call.watchers and call.task is not None:
                loop = asyncio.get_running_loop()
                call.abandon_timer = loop.call_later(self._settings.abandon_after_s, call.task.cancel)
        if call.job is not None:
            pending = PendingCall(call_id=call_id, progress=call.job.progress).model_dump(exclude_none=True)
            results = call.job.finished_results if partial else None
            return {"pending": pending if results is None else {**pending, "results": results}}
        call.collected = True
        self._changed.set()
        if isinstance(call.outcome, RpcError):
            raise copy(call.outcome)
        return orjson.Fragment(call.outcome or b"null")

    def _finish(self, call_id: str, call: _RecordedCall, job: CallJob, task: asyncio.Task[JsonValue]) -> None:
        del self._running[call_id]
        if call.abandon_timer is not None:
            call.abandon_timer.cancel()
        call.outcome, size = _outcome(call_id, job, task)
        call.size = size + _ENTRY_BYTES
        call.job = call.task = None
        # A refused call is not kept: a repeated request starts it.
        if not isinstance(call.outcome, Overloaded):
            call.requested_at = time.monotonic()
            self._finished[call_id] = call
            self._bytes += call.size
            self._evict()
        # Last, so that draining finds the result.
        self._release(job)

    def _evict(self) -> None:
        oldest_kept = time.monotonic() - self._settings.keep_answers_s
        while self._finished:
            call_id, call = next(iter(self._finished.items()))
            too_many = self._bytes > self._settings.max_answer_bytes and len(self._finished) > 1
            if call.requested_at >= oldest_kept and not too_many:
                return
            del self._finished[call_id]
            self._bytes -= call.size


def _outcome(call_id: str, job: CallJob, task: asyncio.Task[JsonValue]) -> tuple[bytes | RpcError, int]:
    """Return the answer or the error of a call that has ended, and its bytes."""
    try:
        answer = wire.write_to_keep(job.cancelled_result() if task.cancelled() else task.result())
        return answer, len(answer)
    except RpcError as error:
        outcome = error.with_traceback(None)
    except Exception:
        logger.exception("unexpected error in the call %r", call_id)
        outcome = InternalError()
    try:
        return outcome, len(wire.write(outcome.to_wire()))
    except LimitExceeded as deep:
        return deep.with_traceback(None), 0
