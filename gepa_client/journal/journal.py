"""Numbers what GEPA asks for and answers what it was told before; everything else is recorded before GEPA sees it.

GEPA repeats itself exactly given its seed and the answers it gets. So each of its requests gets a number in the order
it asks, before anything is sent, and resuming a run is running it again with its journal in front.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import orjson

from evolverpc_common.printed_commands import command
from evolverpc_common.redaction import Secrets
from gepa_client.errors import Interrupted, InterruptStatus, JournalMismatch, RecordedFailure
from gepa_client.journal.buffer import NoTape, Tape
from gepa_client.journal.entries import (
    CLAIMED,
    FAILURE,
    FRUITLESS,
    RETRACE,
    ROLLOUT,
    SEARCH,
    STOP,
    VERBATIM,
    Ended,
    Entry,
    Kept,
    Sent,
)
from gepa_client.journal.requests import Request
from gepa_client.journal.usage import Spend
from gepa_client.transport.cancel_token import Halt
from protocol import JsonValue
from protocol.errors import RpcError


@dataclass
class Slot:
    """A numbered request, and what is recorded of it: an answer, or the exception GEPA got (`failure`)."""

    number: int
    request: Request
    entry: Entry | None = None
    attempts: int = 0
    """The number of the last attempt that was made for it."""
    claimed: set[int] = field(default_factory=set)
    """Attempts of an earlier process that a call of this one has taken over."""
    size: int = 0
    """Bytes of its answer, where it has one."""
    read: Callable[[], bytes] | None = None
    """Reads a recorded answer that was left in the store."""

    @property
    def recorded(self) -> bool:
        """Whether the journal knows its answer."""
        return self.entry is not None and self.entry.kind != FAILURE

    @property
    def failure(self) -> Exception | None:
        """The exception that is recorded in place of an answer."""
        return _failure_of(orjson.loads(self.entry.answer)) if self.entry and self.entry.kind == FAILURE else None

    @property
    def answer(self) -> JsonValue:
        """The recorded answer."""
        if self.entry is None:
            raise LookupError(f"nothing is recorded at {self.number}")
        answer: JsonValue = orjson.loads(self.entry.answer if self.read is None else self.read())
        return answer


@dataclass(frozen=True)
class RecordedStop:
    """Why a run ended where a replay cannot work it out; `gracefully`: between two iterations of GEPA."""

    interrupted: Interrupted
    gracefully: bool


@dataclass
class Journal:
    """One number line of one run. Without a tape nothing is kept, and every request is new.

    May be used from any thread. The requests of one `ask` get consecutive numbers, and calls of `ask` get theirs in
    the order in which they arrive. Only a caller that asks from one thread, as GEPA does, asks in the same order again
    and can be replayed.

    `replays`: only recorded answers are given, at most those before `until`; `live`, which is entered before anything
    is really done, ends it. `inherited`: entries that come from the run this one was forked from. `metered`: a gateway
    counts what programs' calls of models cost, so that what programs report of it is not counted too.
    """

    run_id: str
    tape: Tape = field(default_factory=NoTape)
    spend: Spend = field(default_factory=Spend)
    halt: Halt = field(default_factory=Halt)
    secrets: Secrets = field(default_factory=Secrets)
    part: str = SEARCH
    replays: bool = False
    until: int | None = None
    inherited: int = 0
    metered: bool = False
    store: str | None = None
    """The store as a command has to name it; None for the default one."""
    next_number: int = field(default=0, init=False)
    _when_live: list[Callable[[], None]] = field(default_factory=list, init=False)
    _open: set[int] = field(default_factory=set, init=False)  # numbers that GEPA waits for an answer to
    _failures: list[Entry] = field(default_factory=list, init=False)
    _waiting: "asyncio.Future[None] | None" = field(default=None, init=False)
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False, repr=False)

    def line(self, part: str) -> "Journal":
        """Another number line of the same run, from 0."""
        line = Journal(
            self.run_id, self.tape, self.spend, self.halt, self.secrets, part, self.replays, metered=self.metered
        )
        line.store = self.store
        line._when_live, line._lock = self._when_live, self._lock
        return line

    # --- asking ------------------------------------------------------------------------------------------------------

    def ask(self, requests: Sequence[Request]) -> list[Slot]:
        """Number what GEPA asks for now, in its order, and look up what it was told.

        Raises:
            Interrupted: the run must stop, or was stopped here; or a request is not the one recorded at its number
                (`JournalMismatch`), and going on would be another run.
        """
        self.halt.check()
        with self._lock:
            first = self.next_number
            if self.until is not None and first + len(requests) > self.until:
                raise Interrupted("paused", f"replayed up to {first}, as asked")
            self.gone_on()
            slots = [Slot(first + at, request) for at, request in enumerate(requests)]
            for slot in slots:
                entry = slot.entry = self._recorded(slot)
                if entry is not None:
                    slot.size = entry.omitted or len(entry.answer)
                if entry is not None and entry.omitted:
                    slot.read = partial(self.tape.answer, self.part, slot.number)
            self.next_number += len(slots)
        return slots

    @contextmanager
    def live(self, slots: Sequence[Slot]) -> Iterator[None]:
        """A block in which something is really done for those of a request's slots that have no recorded entry.

        Until the block ends, or after an interruption, `stop` writes at the first of them that has no answer.

        Raises:
            Interrupted: this is a replay, and the record ends here.
        """
        numbers = {slot.number for slot in slots if slot.entry is None}
        with self._lock:
            while self._when_live:
                self._when_live.pop(0)()
            self._open |= numbers
            self.halt.check()
            if self.replays:
                raise Interrupted("paused", f"the record ends here, at {min(numbers, default=self.next_number)}")
            for slot in slots:
                if slot.entry is None:
                    made = self.tape.attempts(self.part, slot.number)
                    slot.attempts = max((attempt.attempt for attempt in made), default=0)
        try:
            yield
        except Exception:
            self._close(numbers)
            raise
        self._close(numbers)

    def _close(self, numbers: set[int]) -> None:
        """GEPA waits for these no more, except where it has yet to go on from a failure."""
        with self._lock:
            self._open -= numbers - {failure.number for failure in self._failures}

    def when_live(self, begin: Callable[[], None]) -> None:
        """Have `begin` called once, when something is first really done; from any thread."""
        with self._lock:
            self._when_live.append(begin)

    def recorded_stop(self) -> "RecordedStop | None":
        """Why the run was stopped at this number, if it was."""
        entry = self.tape.read(self.part, self.next_number)
        return _stop_of(entry) if entry is not None and entry.kind == STOP else None

    @property
    def replaying(self) -> bool:
        """Whether the record goes on: nothing that is asked for now is new. Always so in a replay."""
        return self.replays or self.tape.goes_on(self.part, self.next_number)

    def _recorded(self, slot: Slot) -> Entry | None:
        entry = self.tape.read(self.part, slot.number)
        if entry is None:
            return None
        if entry.kind == STOP:
            raise _stop_of(entry).interrupted
        if entry.digest != slot.request.digest or entry.kind not in (slot.request.kind, FAILURE):
            fork = command("fork", self.run_id, "--at", str(slot.number), store=self.store)
            mismatch = JournalMismatch(
                f"this is not the run that was recorded: at {slot.number} it asks to {slot.request.about} "
                f"[{slot.request.digest[:8]}], but the record has: {entry.about} [{entry.digest[:8]}]. Nothing was "
                f"paid for; `{fork}` makes a run of its own from here"
            )
            raise Interrupted("failed", str(mismatch)) from mismatch
        return entry

    # --- answering ---------------------------------------------------------------------------------------------------

    def record(self, *answers: tuple[Slot, JsonValue]) -> list[JsonValue]:
        """Queue answers that belong together; returns them as GEPA must see them: as a replay will.

        Call `settled` before GEPA does.
        """
        entries = [self._entry(slot, slot.request.kind, answer) for slot, answer in answers]
        for (slot, _), entry in zip(answers, entries, strict=True):
            slot.size = len(entry.answer)
        with self._lock:
            self._open -= {slot.number for slot, _ in answers}
        self.tape.write(*entries)
        return [orjson.loads(entry.answer) for entry in entries]

    def fail(self, slot: Slot, error: Exception) -> None:
        """GEPA gets this exception for a slot; written once GEPA asks for more, as a run that ends here tries again."""
        told = {"type": type(error).__name__, "message": str(error)}
        rpc = {"rpc": error.to_wire()} if isinstance(error, RpcError) else {}
        entry = self._entry(slot, FAILURE, {**told, **rpc})
        with self._lock:
            self._failures.append(entry)
            self._open.add(slot.number)

    def gone_on(self) -> None:
        """GEPA went on from the failures it got, so they are part of the run."""
        with self._lock:
            if self._failures:
                self.tape.write(*self._failures)
                self._open -= {failure.number for failure in self._failures}
                self._failures = []

    def stop(self, interrupted: Interrupted, *, gracefully: bool = False) -> None:
        """Write that the run ended here by a limit that a replay cannot work out.

        `gracefully`: GEPA was between iterations, and is told so rather than interrupted.
        """
        with self._lock:
            if gracefully:
                self.gone_on()
                self._open.clear()
            number = min(self._open, default=self.next_number)
        answer = {"status": interrupted.status, "reason": interrupted.reason, "gracefully": gracefully}
        slot = Slot(number, Request(STOP, "", f"stopped: {interrupted.reason}"))
        self.tape.write(self._entry(slot, STOP, answer))

    def keep(self, candidate: Kept) -> None:
        """GEPA took a candidate into its pool."""
        if not self.replays:
            self.tape.write(candidate)

    async def settled(self) -> None:
        """Wait until everything recorded is in the store.

        Whoever asks in the same turn of the event loop shares one wait: each costs a change of threads.
        """
        if self._waiting is None:
            loop = asyncio.get_running_loop()
            self._waiting = loop.create_future()
            loop.call_soon(self._flush, loop, self._waiting)
        await asyncio.shield(self._waiting)

    def _flush(self, loop: asyncio.AbstractEventLoop, waiting: "asyncio.Future[None]") -> None:
        self._waiting = None
        self.tape.written().add_done_callback(
            lambda written: loop.call_soon_threadsafe(_hand_on, written.exception(), waiting)
        )

    def settle(self) -> None:
        """`settled`, for a thread without an event loop."""
        self.tape.written().result()

    def _entry(self, slot: Slot, kind: str, answer: Any) -> Entry:
        data = self.secrets.written(answer, VERBATIM.get(kind, frozenset()))
        about = self.secrets.redact_text(slot.request.about)
        return Entry(self.part, slot.number, kind, slot.request.digest, about, data)

    # --- attempts ----------------------------------------------------------------------------------------------------

    def attempts(self, slot: Slot, kind: str) -> "SlotAttempts":
        """The attempts of one call that is made for a slot; several calls may be made for the same one."""
        return SlotAttempts(self, slot, kind)

    # --- rollouts ----------------------------------------------------------------------------------------------------

    def rollout(self, slot: Slot) -> JsonValue:
        """What a program answered for a slot, waiting for its score since; None where nothing is recorded."""
        entry = self.tape.read(self._rollouts, slot.number)
        return orjson.loads(entry.answer) if entry is not None and entry.digest == slot.request.digest else None

    def keep_rollout(self, slot: Slot, result: JsonValue) -> JsonValue:
        """Queue a program's answer that has no score yet, so that it is not paid for again; returns it as written."""
        data = self.secrets.written(result)
        request = slot.request
        self.tape.write(Entry(self._rollouts, slot.number, ROLLOUT, request.digest, request.about, data))
        return orjson.loads(data)

    @property
    def _rollouts(self) -> str:
        return f"{self.part}-rollouts"

    def name(self, number: int) -> str:
        """`RUN/number` in the search, `RUN/PART/number` elsewhere: what call ids and groups begin with."""
        return f"{self.run_id}/{number}" if self.part == SEARCH else f"{self.run_id}/{self.part}/{number}"


@dataclass
class SlotAttempts:
    """Names the attempts of one call, records each with its endpoint before it is sent, and what became of it."""

    journal: Journal
    slot: Slot
    kind: str
    _current: int = field(default=0, init=False)
    _end_is_known: bool = field(default=False, init=False)

    def unfinished(self) -> tuple[str, str | None] | None:
        """URL and instance where an earlier process sent this call, and recorded no end of it or no answer."""
        if self.kind == RETRACE:
            return None  # one of many examples that are traced for the same slot: nobody knows which
        made = [
            attempt
            for attempt in self.journal.tape.attempts(self.journal.part, self.slot.number)
            if attempt.kind == self.kind
        ]
        if self._current or not made or made[-1].outcome in FRUITLESS or made[-1].attempt in self.slot.claimed:
            return None
        self._current = made[-1].attempt
        self._end_is_known = made[-1].outcome is not None
        self.slot.claimed.add(self._current)
        return made[-1].endpoint, made[-1].instance

    async def sent(self, url: str, instance: str | None, *, again: bool) -> str:
        """An attempt begins; returns its call id once it is recorded.

        `again`: the same one as before is repeated, in the hope of its answer.
        """
        call_id = self.begin(url, instance, again=again)
        if not again:
            try:
                await self.journal.settled()
            except asyncio.CancelledError:  # nobody waits any more; it never went out
                self.ended("refused", examples=0)
                raise
        return call_id

    def begin(self, endpoint: str, instance: str | None = None, *, again: bool = False) -> str:
        """The same, without waiting for the store."""
        self.journal.halt.check()
        slot, journal = self.slot, self.journal
        if not again:
            slot.attempts += 1
            self._current = slot.attempts
            journal.tape.write(Sent(journal.part, slot.number, self._current, self.kind, endpoint, instance))
            journal.spend.began(self.kind)
        return f"{journal.name(slot.number)}/{self._current}"

    def ended(
        self,
        outcome: str,
        *,
        seconds: float | None = None,
        usage: Mapping[str, Any] | None = None,
        examples: int = 1,
        unpriced: int = 0,
    ) -> None:
        """What became of the attempt, and what it cost, unless a gateway or an earlier process has counted that."""
        if self._end_is_known:
            self._end_is_known = False
            return
        journal = self.journal
        kept = dict(usage) if usage is not None else None
        if journal.metered and self.kind in CLAIMED:
            unpriced = 0
            if kept is not None:
                kept.pop("cost_usd", None)
        journal.spend.ended(self.kind, kept, unpriced)
        journal.tape.write(
            Ended(journal.part, self.slot.number, self._current, outcome, seconds, kept, examples, unpriced)
        )


def _hand_on(error: BaseException | None, waiting: "asyncio.Future[None]") -> None:
    if error is None:
        waiting.set_result(None)
    else:
        waiting.set_exception(error)
        waiting.exception()  # whoever waited may have been cancelled meanwhile


def first_failure(slots: Iterable[Slot]) -> Exception | None:
    """The recorded exception of the first slot that has one."""
    return next((slot.failure for slot in slots if slot.failure is not None), None)


def _failure_of(told: dict[str, Any]) -> Exception:
    if "rpc" in told:
        return RpcError.from_wire(told["rpc"])
    return RecordedFailure(f"{told['type']}: {told['message']}")


def _stop_of(entry: Entry) -> RecordedStop:
    told = orjson.loads(entry.answer)
    status: InterruptStatus = told["status"]
    return RecordedStop(Interrupted(status, told["reason"]), told["gracefully"])
