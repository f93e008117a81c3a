"""What a gateway let through and what it refused, written into a run's journal, counted, and told."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import orjson

from evolverpc_common.display_text import line
from evolverpc_common.redaction import Secrets
from gepa_client.errors import Interrupted, JournalError
from gepa_client.journal.buffer import StoredTape
from gepa_client.journal.entries import GATEWAY, MODEL_CALL, REFUSAL, Ended, Entry, Sent, Spending
from gepa_client.journal.history import end_of, entries
from gepa_client.journal.journal import Journal
from gepa_client.journal.requests import digest_of
from gepa_client.journal.run_events import CallRefused, Emit, Event, ModelCalls, ModelTally
from gepa_client.journal.store import Store
from gepa_client.journal.store_factory import open_store
from gepa_client.journal.usage import Spend
from gepa_client.run.control_messages import ModelCallMessage, RefusalMessage
from gepa_client.transport.cancel_token import Halt

EVERY_S = 0.5
"""Between two events with totals."""

STRAGGLERS_S = 0.2
"""Silence after which no call of what has ended is expected any more: its answer and its price come on two ways."""

LONGEST_S = 2.0
"""Seconds that `settle` takes at most, however many calls keep ending."""

REFUSALS_KEPT = 200
"""Different refusals that are written down; more of them are counted, as programs may ask for anything, for ever."""

REFUSALS_TOLD = 20
FAILURES_KEPT = 1000
"""Calls that failed and cost nothing that are written down, in each process of a run."""

MODELS_KEPT = 50
NAME_SHOWN = 120
REASON_SHOWN = 300
OTHERS = "others"
"""Stands for what is not told apart any more."""

_Told: TypeAlias = tuple[str, str]
"""What was refused, and why."""


NO_OWNER = ""
"""Who writes while nobody drives a run."""


@dataclass
class _Refused:
    """How often in one place first, in all, and how much of that is in the journal."""

    sandbox: str
    times: int = 0
    written: int = 0


class GatewayRecord:
    """Hears of calls and refusals from any thread, from before a run has a journal until after it has none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._early: list[ModelCallMessage | RefusalMessage] = []
        self._journal: Journal | None = None
        self._emit: Emit = lambda _event: None
        self._ended = False
        self._heard = 0.0
        self._next_call = self._next_refusal = 0
        self._by_model: dict[str, ModelTally] = {}
        self._refused: dict[_Told, _Refused] = {}
        self._free_failures = 0
        self._cap: str | None = None
        self._when_capped: Callable[[str], None] = lambda _reason: None
        self._told: ModelCalls | None = ModelCalls()
        self._told_s = 0.0

    def begin(self, journal: Journal, store: Store, emit: Emit) -> None:
        """Write into this journal from now on, after what is in it, and tell what is."""
        calls, refusals = recorded_gateway_events(store, journal.run_id)
        first = sum(tally.calls for tally in calls.by_model.values())  # each has a number, from 0
        beyond = store.attempts(journal.run_id, GATEWAY, first)
        with self._lock:
            self._journal, self._emit = journal, emit
            self._next_call = max((attempt.number + 1 for attempt in beyond), default=first)
            self._next_refusal = end_of(store, journal.run_id, GATEWAY)
            self._by_model = dict(calls.by_model)
            for told in refusals:
                self._refused[told.what, told.reason] = _Refused(told.sandbox, told.times, told.times)
            early, self._early = self._early, []
        for told in refusals[:REFUSALS_TOLD]:
            emit(told)
        for message in early:
            self.heard(message)

    def heard(self, message: ModelCallMessage | RefusalMessage) -> None:
        """A call has ended, or something was refused; never waits for the store."""
        with self._lock:
            self._heard = time.monotonic()
            if self._ended:
                return
            if self._journal is None:
                self._early.append(message)
                return
            journal, told = self._journal, None
            try:
                if isinstance(message, ModelCallMessage):
                    self._called(journal, message)
                else:
                    told = self._was_refused(journal, message)
            except Interrupted:  # nothing can be written any more, and whoever drives the run knows
                self._ended = True
        if isinstance(message, ModelCallMessage):
            journal.spend.began(MODEL_CALL)
            journal.spend.ended(MODEL_CALL, message.usage, _unpriced(message))  # may halt the run
        if told is not None:
            self._emit(told)

    def capped(self, reason: str) -> None:
        """The gateway lets nothing more through; from any thread."""
        with self._lock:
            self._cap = reason
            told = self._when_capped
        told(reason)

    def when_capped(self, told: Callable[[str], None]) -> None:
        """Have `told` called then, or at once if that has been."""
        with self._lock:
            self._when_capped = told
            reason = self._cap
        if reason is not None:
            told(reason)

    def news(self, *, at_once: bool = False) -> ModelCalls | None:
        """What there is in all, unless that was told a moment ago or is told already."""
        now = time.monotonic()
        with self._lock:
            if not at_once and now - self._told_s < EVERY_S:
                return None
            reading = _reading(self._by_model, sum(refused.times for refused in self._refused.values()))
            if reading == self._told:
                return None
            self._told, self._told_s = reading, now
        return reading

    def quiet_for(self) -> float:
        """Seconds since something was heard."""
        with self._lock:
            return time.monotonic() - self._heard

    def settle(self) -> None:
        """Wait for calls of work that has ended, as long as some keep coming, for a moment at most."""
        until = time.monotonic() + LONGEST_S
        asked = time.monotonic()
        while (left := STRAGGLERS_S - min(self.quiet_for(), time.monotonic() - asked)) > 0 and time.monotonic() < until:
            time.sleep(left)

    def end(self) -> None:
        """Write what was only counted; nothing is written from now on."""
        with self._lock:
            journal, self._ended = self._journal, True
            counted = [(told, refused) for told, refused in self._refused.items() if refused.times > refused.written]
            if journal is None or not counted:
                return
            try:
                for told, refused in counted:
                    self._write_refusal(journal, told, refused)
            except Interrupted:
                return
            again = [
                CallRefused(sandbox=refused.sandbox, what=what, reason=reason, times=refused.times)
                for (what, reason), refused in list(self._refused.items())[:REFUSALS_TOLD]
                if refused.times > 1
            ]
        for event in again:
            self._emit(event)

    # --- what is written ---------------------------------------------------------------------------------------------

    def _called(self, journal: Journal, call: ModelCallMessage) -> None:
        name = self._name(journal, call)
        self._by_model[name] = _added(self._by_model.get(name, ModelTally()), call)
        if call.is_free:
            self._free_failures += 1
            if self._free_failures > FAILURES_KEPT:
                return
        number, self._next_call = self._next_call, self._next_call + 1
        sandbox = journal.secrets.redact_text(line(call.sandbox, NAME_SHOWN))
        succeeded = int(call.outcome == "ok")
        journal.tape.write(
            Sent(GATEWAY, number, 1, MODEL_CALL, name, sandbox),
            Ended(GATEWAY, number, 1, call.outcome, call.seconds, call.usage, succeeded, _unpriced(call)),
        )

    def _name(self, journal: Journal, call: ModelCallMessage) -> str:
        """`provider/model`; which models there are is for programs to say, so not every one is told apart."""
        name = journal.secrets.redact_text(line(f"{call.provider}/{call.model or '-'}", NAME_SHOWN))
        known = name in self._by_model or len(self._by_model) < MODELS_KEPT
        return name if known else OTHERS

    def _was_refused(self, journal: Journal, refusal: RefusalMessage) -> CallRefused | None:
        what, reason, sandbox = (
            journal.secrets.redact_text(line(text, limit))
            for text, limit in (
                (refusal.what, REASON_SHOWN),
                (refusal.reason, REASON_SHOWN),
                (refusal.sandbox, NAME_SHOWN),
            )
        )
        told = (what, reason)
        if told not in self._refused and len(self._refused) >= REFUSALS_KEPT:
            told, sandbox = (OTHERS, "different refusals, more than are told apart"), OTHERS
        known = told in self._refused
        refused = self._refused.setdefault(told, _Refused(sandbox))
        refused.times += refusal.times
        if known:
            return None
        self._write_refusal(journal, told, refused)
        if len(self._refused) > REFUSALS_TOLD:
            return None
        return CallRefused(sandbox=sandbox, what=told[0], reason=told[1])

    def _write_refusal(self, journal: Journal, told: _Told, refused: _Refused) -> None:
        """An entry for what is not in the journal yet."""
        what, reason = told
        answer = {"sandbox": refused.sandbox, "what": what, "reason": reason, "times": refused.times - refused.written}
        about = f"refuse {what} to {refused.sandbox}: {reason}"
        number, self._next_refusal = self._next_refusal, self._next_refusal + 1
        journal.tape.write(Entry(GATEWAY, number, REFUSAL, digest_of(list(told)), about, orjson.dumps(answer)))
        refused.written = refused.times


def recorded_gateway_events(store: Store, run_id: str) -> tuple[ModelCalls, list[CallRefused]]:
    """What a store knows of a run's calls of models, and what was refused, each different thing once."""
    by_model = {endpoint: _tally(spending) for endpoint, spending in store.spending_at(run_id, MODEL_CALL).items()}
    refused: dict[_Told, CallRefused] = {}
    for told in _refusals(store, run_id):
        before = refused.get((told.what, told.reason))
        times = told.times + (before.times if before is not None else 0)
        refused[told.what, told.reason] = (before or told).model_copy(update={"times": times})
    return _reading(by_model, sum(told.times for told in refused.values())), list(refused.values())


def _refusals(store: Store, run_id: str) -> Iterator[CallRefused]:
    for entry in entries(store, run_id, GATEWAY):
        if entry.kind == REFUSAL:
            yield CallRefused.model_validate(orjson.loads(entry.answer))


def _reading(by_model: Mapping[str, ModelTally], refused: int) -> ModelCalls:
    total = ModelTally()
    for tally in by_model.values():
        total = _sum(total, tally)
    return ModelCalls(total=total, by_model=dict(by_model), refused=refused)


def _sum(one: ModelTally, other: ModelTally) -> ModelTally:
    return ModelTally(**{name: getattr(one, name) + getattr(other, name) for name in ModelTally.model_fields})


def _added(tally: ModelTally, call: ModelCallMessage) -> ModelTally:
    return _sum(
        tally,
        ModelTally(
            calls=1,
            failed=int(call.outcome != "ok"),
            input_tokens=call.input_tokens or 0,
            output_tokens=call.output_tokens or 0,
            cost_usd=call.cost_usd or 0.0,
            unpriced=_unpriced(call),
        ),
    )


def _unpriced(call: ModelCallMessage) -> int:
    return int(call.cost_usd is None and not call.is_free)


def _tally(spending: list[Spending]) -> ModelTally:
    total = ModelTally()
    for spent in spending:
        failed = 0 if spent.outcome == "ok" else spent.attempts
        total = _sum(
            total,
            ModelTally(
                calls=spent.attempts,
                failed=failed,
                input_tokens=spent.input_tokens,
                output_tokens=spent.output_tokens,
                cost_usd=spent.cost_usd,
                unpriced=spent.unpriced,
            ),
        )
    return total


def record_late_calls(
    where: str, run_id: str, secrets: Sequence[str], told: Sequence[ModelCallMessage | RefusalMessage]
) -> list[Event]:
    """Write them into the run's journal. `where`: its store; `secrets`: what must not be in it.

    Returns what there is of calls and refusals now, in all.

    Raises:
        JournalError: they cannot be written; somebody else may drive the run by now.
    """
    failures: list[BaseException] = []
    news: list[Event] = []
    store = open_store(where)
    try:
        tape = StoredTape(store, run_id, NO_OWNER, failures.append)
        try:
            journal = Journal(run_id, tape, Spend(), Halt(), Secrets(secrets), metered=True)
            record = GatewayRecord()
            record.begin(journal, store, news.append)
            for message in told:
                record.heard(message)
            record.end()
            if (calls := record.news(at_once=True)) is not None:
                news.append(calls)
        finally:
            tape.close()
    finally:
        store.close()
    if failures:
        raise JournalError(str(failures[0]))
    return news
