"""Calls: their admission, and those with a `call_id`, which run once and whose results are kept for a while."""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import orjson

from protocol import JsonValue, PendingCall
from protocol.errors import CallIdConflict, CallNotFound, InternalError, LimitExceeded, Overloaded, RpcError
from rpc_server.methods.jobs import CallJob
from rpc_server.rpc import wire

_RETRY_AFTER_S = 1.0


class AdmissionController:
    """Bounds the examples of running jobs: those that may run and wait at once.

    `jobs`: those that were admitted and have not ended. `changed`: one has ended, or a result was collected.
    """

    def __init__(self, *, max_running: int, max_waiting: int) -> None:
        self._room = max_running + max_waiting
        self.jobs: set[CallJob] = set()
        self.draining = False
        self.changed = asyncio.Event()

    def admit(self, job: CallJob) -> None:
        """Admit a job; `release` must follow its end.

        One larger than all the room is admitted when nothing else runs, as it could never start otherwise.

        Raises:
            Overloaded: there is no room, or the server is shutting down.
        """
        if self.draining:
            raise Overloaded("shutting down", retry_after_s=_RETRY_AFTER_S)
        examples = sum(each.left for each in self.jobs)
        if examples and examples + job.left > self._room:
            raise Overloaded(retry_after_s=_RETRY_AFTER_S)
        self.jobs.add(job)

    def release(self, job: CallJob) -> None:
        """Free the room of a job that has ended."""
        self.jobs.discard(job)
        self.changed.set()


logger = logging.getLogger(__name__)

_ENTRY_BYTES = 1024
"""Approximate bytes of a kept result beyond its content, so that many small ones are bounded too."""


class _Running(NamedTuple):
    """The parts of a call that exist until it ends."""

    job: CallJob
    task: asyncio.Task[JsonValue]


@dataclass(eq=False)
class _RecordedCall:
    """One call. `running` is None exactly if `answer` or `error`, as sent on the wire, is set.

    Params and results as objects are not kept after the end: they are many times the counted size.
    """

    call_id: str
    request: bytes
    running: _Running | None
    watchers: int = 0
    abandon_timer: asyncio.TimerHandle | None = None
    answer: bytes | None = None
    error: dict[str, Any] | None = None
    size: int = 0
    requested_at: float = 0.0
    collected: bool = False


class CallLedger:
    """Every call that this instance knows by its `call_id`.

    A running call survives its connection; it is cancelled after `abandon_after_s` without a request. Its result is
    kept for `keep_answers_s` after the last request, and evicted earlier, least recently requested first, while all
    results exceed `max_answer_bytes`; the newest always stays, or a client would repeat its work forever.
    """

    def __init__(
        self, controller: AdmissionController, *, abandon_after_s: float, keep_answers_s: float, max_answer_bytes: int
    ) -> None:
        self._controller = controller
        self._abandon_after_s = abandon_after_s
        self._keep_answers_s = keep_answers_s
        self._max_answer_bytes = max_answer_bytes
        self._running: dict[str, _RecordedCall] = {}
        self._finished: OrderedDict[str, _RecordedCall] = OrderedDict()
        self._bytes = 0

    @property
    def uncollected(self) -> bool:
        """Whether some finished result was not returned yet."""
        return any(not call.collected for call in self._finished.values())

    async def submit(
        self, call_id: str, request: bytes, start: Callable[[], CallJob], wait_s: float | None
    ) -> JsonValue:
        """Return the result of the call, started now if it is new; `pending` after `wait_s` seconds (None: never).

        `request`: a digest of the request. `start` checks and prepares; its errors are not kept.

        Raises:
            CallIdConflict: the id belongs to another request.
            RpcError: the call's own error.
        """
        call = self._find(call_id)
        if call is None:
            call = self._start(call_id, request, start())
        elif call.request != request:
            raise CallIdConflict(call_id=call_id)
        return await self._watch(call, wait_s)

    async def get(self, call_id: str, wait_s: float, *, partial: bool) -> JsonValue:
        """Return the result of a known call, else `pending`, if `partial` with its finished results.

        Raises `CallNotFound` or as `submit`.
        """
        return await self._watch(self._known(call_id), wait_s, partial=partial)

    async def cancel(self, call_id: str) -> Literal["cancelled", "finished"]:
        """Cancel a call; return when it has ended. Raises `CallNotFound`."""
        call = self._known(call_id)
        task = None if call.running is None else call.running.task
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
        # The client that cancels will not fetch the result, so that draining need not wait for it.
        call.collected = True
        self._controller.changed.set()
        return "cancelled" if task is not None and task.cancelled() else "finished"

    async def close(self) -> None:
        """Cancel what is running."""
        tasks = [call.running.task for call in self._running.values() if call.running is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

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
        self._controller.admit(job)
        task = asyncio.create_task(job.run())
        call = self._running[call_id] = _RecordedCall(call_id, request, _Running(job, task))
        # The first callback, so that later ones find the call finished.
        task.add_done_callback(lambda task: self._finish(call, job, task))
        return call

    async def _watch(self, call: _RecordedCall, wait_s: float | None, *, partial: bool = False) -> JsonValue:
        call.watchers += 1
        if call.abandon_timer is not None:
            call.abandon_timer.cancel()
            call.abandon_timer = None
        try:
            if call.running is not None:
                await asyncio.wait({call.running.task}, timeout=wait_s)
        finally:
            call.watchers -= 1
            if not call.watchers and call.running is not None:
                loop = asyncio.get_running_loop()
                call.abandon_timer = loop.call_later(self._abandon_after_s, call.running.task.cancel)
        if call.running is not None:
            job = call.running.job
            pending = PendingCall(call_id=call.call_id, progress=job.progress).model_dump(exclude_none=True)
            results = job.finished_results if partial else None
            return {"pending": pending if results is None else {**pending, "results": results}}
        call.collected = True
        self._controller.changed.set()
        if call.error is not None:
            raise RpcError.from_wire(call.error)
        return orjson.Fragment(call.answer or b"null")

    def _finish(self, call: _RecordedCall, job: CallJob, task: asyncio.Task[JsonValue]) -> None:
        del self._running[call.call_id]
        if call.abandon_timer is not None:
            call.abandon_timer.cancel()
        outcome = _outcome(call.call_id, job, task)
        if isinstance(outcome, RpcError):
            call.error, written = _serialized(outcome)
        else:
            call.answer = written = outcome
        call.size = len(written) + _ENTRY_BYTES
        call.running = None
        # A refused call is not kept: a repeated request starts it.
        if not isinstance(outcome, Overloaded):
            call.requested_at = time.monotonic()
            self._finished[call.call_id] = call
            self._bytes += call.size
            self._evict()
        # Last, so that draining finds the result.
        self._controller.release(job)

    def _evict(self) -> None:
        oldest_kept = time.monotonic() - self._keep_answers_s
        while self._finished:
            call = next(iter(self._finished.values()))
            too_many = self._bytes > self._max_answer_bytes and len(self._finished) > 1
            if call.requested_at >= oldest_kept and not too_many:
                return
            del self._finished[call.call_id]
            self._bytes -= call.size


def _outcome(call_id: str, job: CallJob, task: asyncio.Task[JsonValue]) -> bytes | RpcError:
    try:
        return wire.write_to_keep(job.cancelled_result() if task.cancelled() else task.result())
    except RpcError as error:
        return error
    except Exception:
        logger.exception("unexpected error in the call %r", call_id)
        return InternalError()


def _serialized(error: RpcError) -> tuple[dict[str, Any], bytes]:
    """Return the error for the wire and its JSON; another error if the program's is nested too deep."""
    try:
        return error.to_wire(), wire.write(error.to_wire())
    except LimitExceeded as deep:
        return deep.to_wire(), wire.write(deep.to_wire())
