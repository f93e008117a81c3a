"""The journal of a run: numbers GEPA's requests, returns recorded answers on replay, and records new ones first.

GEPA repeats itself exactly given its seed and the answers it gets. So each request is numbered in GEPA's order before
anything is sent, and to resume a run is to run it again with its journal in front.
"""

import asyncio
import functools
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from evolverpc_common.display_text import command
from evolverpc_common.redaction import Secrets
from gepa_client.errors import BadResponse, Interrupted, InterruptStatus, JournalMismatch
from gepa_client.journal.buffer import LARGEST_HELD, JournalStorage
from gepa_client.journal.entries import (
    EVENTS,
    FAILURE,
    PROCESSES,
    ROLLOUT,
    SEARCH,
    STEER,
    STOP,
    VERBATIM,
    Entry,
)
from gepa_client.journal.requests import JournaledAttempts, RecordedOutput, RecordedRequest, RequestKey, SpendingTotals
from gepa_client.transport.calls import AttemptLog, Call, Reply
from gepa_client.transport.event_loop import CancelToken, GroupTask, run_group
from protocol import JsonValue
from protocol.errors import ProgramFailed, RpcError

CONTINUED_AT_ONCE = 4
"""Callers of `settled` that continue in one turn of the event loop."""

COMPARED = (
    *("at", "iteration", "proposal", "parent", "parents", "results", "index", "front", "best", "metric_calls"),
    *("score", "old_score", "new_score", "candidate", "unchanged", "mutation", "number"),
)
"""Fields of decisions that are equal when they are made again: texts may be redacted or worded otherwise."""

RECORDED_FAILURES = (ProgramFailed, BadResponse)
"""Failures of a request that do not end the run: the program failed, or its answer is not valid."""


@dataclass
class Journal:
    """One numbered stream of requests of one run. Without storage nothing is kept, and every request is new.

    May be used from any thread. The requests of one `ask` get consecutive numbers, in the order in which calls of `ask`
    arrive. Only a caller that asks from one thread, as GEPA does, repeats its order and can be replayed.

    `replays`: return recorded answers only, at most those before `until`; `executing` ends the replay. `inherited`: the
    number of entries that come from the run this one was forked from. `metered`: a gateway counts the cost of programs'
    model calls, so that what programs report is not counted too.
    """

    run_id: str
    storage: JournalStorage = field(default_factory=JournalStorage)
    spending: SpendingTotals = field(default_factory=SpendingTotals)
    cancel_token: CancelToken = field(default_factory=CancelToken)
    secrets: Secrets = field(default_factory=Secrets)
    part: str = SEARCH
    replays: bool = False
    until: int | None = None
    inherited: int = 0
    metered: bool = False
    store: str | None = None
    """The store as a printed command names it; None for the default store."""
    next_number: int = field(default=0, init=False)
    _on_first_write: list[Callable[[], None]] = field(default_factory=list, init=False)
    _open: set[int] = field(default_factory=set, init=False)  # numbers whose answer GEPA waits for
    _failures: list[Entry] = field(default_factory=list, init=False)
    _decisions: list[tuple[str, dict[str, JsonValue]]] = field(default_factory=list, init=False)
    _decided: int = field(default=0, init=False)
    _noted: int | None = field(default=None, init=False)  # the last number of `PROCESSES`
    _settling: "list[asyncio.Future[None]]" = field(default_factory=list, init=False)
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False, repr=False)

    def stream(self, part: str) -> "Journal":
        """Return another stream of the same run, numbered from 0."""
        stream = replace(self, part=part, until=None, inherited=0)
        stream._on_first_write, stream._lock = self._on_first_write, self._lock
        return stream

    # --- requests ----------------------------------------------------------------------------------------------------

    def ask(self, keys: Sequence[RequestKey]) -> list[RecordedRequest]:
        """Assign numbers to GEPA's requests in its order; return them with their recorded answers.

        Raises:
            Interrupted: the run must stop, or was stopped here; or a request is not the one recorded at its number
                (`JournalMismatch`), and continuing would be another run.
        """
        self.cancel_token.check()
        with self._lock:
            first = self.next_number
            if self.until is not None and first + len(keys) > self.until:
                raise Interrupted("paused", f"replayed up to {first}, as requested")
            self.commit()
            requests = [RecordedRequest(first + at, key) for at, key in enumerate(keys)]
            for request in requests:
                entry = request.entry = self._recorded(request)
                if entry is not None:
                    request.size = entry.omitted or len(entry.answer)
                if entry is not None and entry.omitted:
                    request.read = functools.partial(self.storage.answer, self.part, request.number)
            self.next_number += len(requests)
        return requests

    @contextmanager
    def executing(self, requests: Sequence[RecordedRequest]) -> Iterator[None]:
        """Enclose the execution of those of these requests that have no recorded entry.

        Until the block ends, or after an interruption, `stop` writes at the first of them without an answer.

        Raises:
            Interrupted: this is a replay, and the record ends here.
        """
        numbers = {request.number for request in requests if request.entry is None}
        with self._lock:
            while self._on_first_write:
                self._on_first_write.pop(0)()
            self._open |= numbers
            self.cancel_token.check()
            if self.replays:
                raise Interrupted("paused", f"the record ends here, at {min(numbers, default=self.next_number)}")
            for request in requests:
                if request.entry is None:
                    made = self.storage.attempts(self.part, request.number)
                    request.attempts = max((attempt.attempt for attempt in made), default=0)
        try:
            yield
        except Exception:
            self._close(numbers)
            raise
        self._close(numbers)

    def _close(self, numbers: set[int]) -> None:
        """Mark these numbers as answered, except failures that GEPA has yet to continue from."""
        with self._lock:
            self._open -= numbers - {failure.number for failure in self._failures}

    def on_first_write(self, listener: Callable[[], None]) -> None:
        """Have `listener` called once, before the first request is executed; from any thread."""
        with self._lock:
            self._on_first_write.append(listener)

    def recorded_stop(self) -> Interrupted | None:
        """Return why the run was stopped at this number, if it was."""
        entry = self.storage.read(self.part, self.next_number)
        return _stop_of(entry) if entry is not None and entry.kind == STOP else None

    def steer_entry(self) -> Entry | None:
        """Return the entry at this number if a user's request made it."""
        if self.until is not None and self.next_number >= self.until:
            return None
        entry = self.storage.read(self.part, self.next_number)
        return entry if entry is not None and entry.kind == STEER else None

    @property
    def recorded_further(self) -> bool:
        """Whether the record has an entry at this number or beyond it."""
        return self.storage.has_more(self.part, self.next_number)

    @property
    def replaying(self) -> bool:
        """Whether the record continues: no request made now is new. Always true in a replay."""
        return self.replays or self.recorded_further

    def _recorded(self, request: RecordedRequest) -> Entry | None:
        entry = self.storage.read(self.part, request.number)
        if entry is None:
            return None
        if entry.kind == STOP:
            raise _stop_of(entry)
        if entry.digest != request.key.digest or entry.kind not in (request.key.kind, FAILURE):
            fork = command("fork", self.run_id, "--at", str(request.number), store=self.store)
            instead = (
                f"`{fork}` makes a run of its own from here"
                if request.number
                else "no recorded score can be kept, so start a new run"
            )
            mismatch = JournalMismatch(
                f"this is not the run that was recorded: at {request.number} it asks to {request.key.about} "
                f"[{request.key.digest[:8]}], but the record has: {entry.about} [{entry.digest[:8]}]. Nothing was "
                f"paid for; {instead}"
            )
            raise Interrupted("failed", str(mismatch)) from mismatch
        return entry

    # --- answers -----------------------------------------------------------------------------------------------------

    def record(self, *answers: tuple[RecordedRequest, JsonValue]) -> list[JsonValue]:
        """Queue answers that belong together; return them as GEPA must see them: as a replay will.

        Call `settled` before GEPA sees them.
        """
        entries = [self._entry(request, request.key.kind, answer) for request, answer in answers]
        for (request, _), entry in zip(answers, entries, strict=True):
            request.size = len(entry.answer)
        with self._lock:
            self._open -= {request.number for request, _ in answers}
        self.storage.write(*entries)
        return [orjson.loads(entry.answer) for entry in entries]

    def shortened(self, number: int, size: int, result: dict[str, Any]) -> dict[str, Any]:
        """Return a recorded result of `size` bytes as it is held in memory: its large members are left in the store."""
        if size <= LARGEST_HELD or not self.storage.keeps:
            return result
        stand_in = RecordedOutput(self.run_id, self.part, number, self.storage)
        return stand_in.in_place_of_large_members(result)

    def fail(self, request: RecordedRequest, error: Exception) -> None:
        """Record that GEPA gets this exception; written once GEPA asks again, so that a run ending here retries it."""
        failure: dict[str, Any] = {"type": type(error).__name__, "message": str(error)}
        if isinstance(error, RpcError):
            failure["rpc"] = error.to_wire()
        entry = self._entry(request, FAILURE, failure)
        with self._lock:
            self._failures.append(entry)
            self._open.add(request.number)

    def decided(self, kind: str, decision: dict[str, JsonValue]) -> None:
        """Record what GEPA decided; written once GEPA asks again: a failure before it may be tried again."""
        with self._lock:
            self._decisions.append((kind, decision))

    def commit(self, *, ended: bool = False) -> None:
        """Write the failures that GEPA got and its decisions: it has continued from them, so they are part of the run.

        `ended`: it has not, but the search is over; failures, and the decisions after them, are not written then.

        Raises:
            Interrupted: GEPA decided otherwise than is recorded.
        """
        with self._lock:
            if ended and self._failures:
                return
            if self._failures:
                self.storage.write(*self._failures)
                self._open -= {failure.number for failure in self._failures}
                self._failures = []
            while self._decisions:
                self._write_decision(*self._decisions.pop(0))

    def noted(self, kind: str, event: JsonValue) -> None:
        """Record how this process began, or what it came to."""
        with self._lock:
            number = 0 if self._noted is None else self._noted + 1
            while self._noted is None and self.storage.read(PROCESSES, number) is not None:
                number += 1  # of processes before
            self._noted = number
            self.storage.write(Entry(PROCESSES, number, kind, "", kind, self.secrets.written(event)))

    def _write_decision(self, kind: str, decision: dict[str, JsonValue]) -> None:
        data = self.secrets.written(decision, VERBATIM.get(kind, frozenset()))
        entry = Entry(EVENTS, self._decided, kind, "", kind, data)
        recorded = self.storage.read(EVENTS, self._decided)
        if recorded is None:
            self.storage.write(entry)
        elif (recorded.kind, _compared(recorded)) != (kind, _compared(entry)):
            self._decisions = []
            fork = command("fork", self.run_id, "--at", str(decision.get("at", 0)), store=self.store)
            mismatch = JournalMismatch(
                f"this is not the run that was recorded: GEPA decides otherwise, first at decision {self._decided} "
                f"(`{kind}`, recorded: `{recorded.kind}`), so another version may run it now. Nothing was paid for; "
                f"`{fork}` makes a run of its own from here"
            )
            raise Interrupted("failed", str(mismatch)) from mismatch
        self._decided += 1

    def stop(self, interrupted: Interrupted) -> None:
        """Write that the run ended here by a limit that a replay cannot work out."""
        with self._lock:
            number = min(self._open, default=self.next_number)
        answer = {"status": interrupted.status, "reason": interrupted.reason}
        request = RecordedRequest(number, RequestKey(STOP, "", f"stopped: {interrupted.reason}"))
        self.storage.write(self._entry(request, STOP, answer))

    async def settled(self) -> None:
        """Wait until everything recorded is in the store.

        Callers in the same turn of the event loop share one wait: each costs a change of threads. They continue a few
        in each turn, as requests are sent at the end of a turn: servers begin with these while the next are prepared.
        """
        loop = asyncio.get_running_loop()
        if not self._settling:
            loop.call_soon(self._flush, loop)
        waiting = loop.create_future()
        self._settling.append(waiting)
        await waiting

    def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        waiting, self._settling = iter(self._settling), []
        self.storage.written().add_done_callback(
            lambda written: loop.call_soon_threadsafe(_continue, written.exception(), waiting)
        )

    def settle(self) -> None:
        """Do the same as `settled`, for a thread without an event loop."""
        self.storage.written().result()

    def _entry(self, request: RecordedRequest, kind: str, answer: Any) -> Entry:
        data = self.secrets.written(answer, VERBATIM.get(kind, frozenset()))
        key = replace(request.key, about=self.secrets.redact_text(request.key.about))
        return key.answered(self.part, request.number, data, kind=kind)

    # --- attempts and rollouts ---------------------------------------------------------------------------------------

    def attempts(self, request: RecordedRequest, kind: str, task: GroupTask | None = None) -> JournaledAttempts:
        """Return the log of the attempts of one call made for a request; `task` begins with the first of them."""
        return JournaledAttempts(self, request, kind, task)

    def rollout(self, request: RecordedRequest) -> JsonValue:
        """Return a program's recorded answer that still needs its score; None if nothing is recorded."""
        entry = self.storage.read(self._rollouts, request.number)
        return orjson.loads(entry.answer) if entry is not None and entry.digest == request.key.digest else None

    def record_rollout(self, request: RecordedRequest, result: JsonValue) -> JsonValue:
        """Queue a program's answer without a score, so that it is paid for only once; return it as written."""
        data = self.secrets.written(result)
        self.storage.write(request.key.answered(self._rollouts, request.number, data, kind=ROLLOUT))
        return orjson.loads(data)

    @property
    def _rollouts(self) -> str:
        return f"{self.part}-rollouts"

    def name(self, number: int) -> str:
        """Return `RUN/number` in the search, `RUN/PART/number` elsewhere: the prefix of call ids and groups."""
        return f"{self.run_id}/{number}" if self.part == SEARCH else f"{self.run_id}/{self.part}/{number}"


@dataclass(frozen=True)
class KeyedCall:
    """A call and the key under which its answer is recorded.

    `to_json`: turns the value of the reply into what is recorded; raises `BadResponse` if it is not valid.
    `on_answer`: called when a new answer is recorded.
    """

    key: RequestKey
    call: Call[Any]
    to_json: Callable[[Any], JsonValue] = lambda value: value
    on_answer: Callable[[RecordedRequest, JsonValue], None] = lambda _request, _answer: None


async def gather_recorded(
    journal: Journal, make: Callable[[Call[Any], AttemptLog], Awaitable[Reply[Any]]], calls: Sequence[KeyedCall]
) -> list[Any]:
    """Have `make` make several calls at once, without those whose answer is recorded, and record the new answers.

    Returns each answer as JSON, or the exception in its place that is one of `RECORDED_FAILURES`; in order.

    Raises:
        Interrupted: the run must stop. RpcError, ClientError: a call is wrong.
    """
    requests = journal.ask([keyed.key for keyed in calls])

    async def execute(at: int, task: GroupTask) -> JsonValue:
        keyed, request = calls[at], requests[at]
        reply = await make(keyed.call, journal.attempts(request, keyed.key.kind, task))
        answer = keyed.to_json(reply.value)
        keyed.on_answer(request, answer)
        return answer

    return await execute_missing(journal, requests, execute)


async def execute_missing(
    journal: Journal,
    requests: Sequence[RecordedRequest],
    execute: Callable[[int, GroupTask], Awaitable[JsonValue]],
    failures: tuple[type[Exception], ...] = RECORDED_FAILURES,
) -> list[Any]:
    """Execute the requests that have no recorded entry, all at once, and record their answers.

    `execute` gets a request's index. Returns each answer as JSON, or the exception in its place that is one of
    `failures`; in order. Raises: what else `execute` raises.
    """
    answers: list[Any] = [
        request.failure or request.answer if request.entry is not None else None for request in requests
    ]
    missing = [at for at, request in enumerate(requests) if request.entry is None]
    if not missing:
        return answers
    failed: dict[int, Exception] = {}

    async def make(at: int, task: GroupTask) -> None:
        try:
            answer = await execute(at, task)
        except failures as error:
            answers[at] = failed[at] = error
        else:
            [answers[at]] = journal.record((requests[at], answer))

    with journal.executing(requests):
        try:
            await run_group([GroupTask(functools.partial(make, at)) for at in missing])
        finally:
            for at in sorted(failed):  # in the order of the requests, whichever failed first
                journal.fail(requests[at], failed[at])
            await journal.settled()
    return answers


def _continue(error: BaseException | None, waiting: "Iterator[asyncio.Future[None]]") -> None:
    """End the first of these waits, and the others in later turns of the loop."""
    for at, each in enumerate(waiting, 1):
        if not each.done():  # its caller was not cancelled meanwhile
            if error is None:
                each.set_result(None)
            else:
                each.set_exception(error)
                each.exception()  # the caller may be cancelled before it continues
        if at == CONTINUED_AT_ONCE:
            asyncio.get_running_loop().call_soon(_continue, error, waiting)
            return


def _compared(decision: Entry) -> dict[str, JsonValue]:
    recorded: dict[str, JsonValue] = orjson.loads(decision.answer)
    return {name: recorded.get(name) for name in COMPARED}


def _stop_of(entry: Entry) -> Interrupted:
    recorded = orjson.loads(entry.answer)
    status: InterruptStatus = recorded["status"]
    return Interrupted(status, recorded["reason"])
