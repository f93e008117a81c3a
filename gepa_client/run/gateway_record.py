"""What a gateway forwarded and refused: written into the run's journal, counted, and emitted as events."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, TypeAlias

import orjson

from evolverpc_common.display_text import one_line
from evolverpc_common.redaction import Secrets
from gepa_client.errors import Interrupted, JournalError
from gepa_client.journal.buffer import JournalBuffer
from gepa_client.journal.entries import GATEWAY, MODEL_CALL, REFUSAL, Attempt, Entry
from gepa_client.journal.history import end_of, entries
from gepa_client.journal.journal import Journal
from gepa_client.journal.requests import SpendingTotals, digest_of
from gepa_client.journal.run_events import CallRefused, Emit, Event, ModelCalls, ModelTally
from gepa_client.journal.store import Store, open_store
from gepa_client.run.control_messages import GatewayMessage, ModelCallMessage
from gepa_client.transport.event_loop import CancelToken

EVERY_S = 0.5
"""Seconds between two events with totals."""

STRAGGLERS_S = 0.2
"""Seconds of silence after which no call of completed work is expected: its response and its price come on two ways."""

LONGEST_S = 2.0
"""Seconds that `settle` takes at most."""

REFUSALS_EMITTED = 20
"""Different refusals that are events; a gateway bounds how many it reports of each sandbox, and all are recorded."""

FAILURES_KEPT = 1000
"""Failed calls without cost that each process of a run records."""

MODELS_KEPT = 50
NAME_SHOWN = 120
OTHERS = "others"
"""The name of all models beyond the limit above."""

_RefusalKey: TypeAlias = tuple[str, str]
"""What was refused, and why."""

NO_OWNER = ""
"""The owner of entries that are written while no process drives the run."""


class GatewayRecord:
    """Takes calls and refusals from any thread, from before a run has a journal until after its end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._early: list[GatewayMessage] = []
        self._journal: Journal | None = None
        self._emit: Emit = lambda _event: None
        self._ended = False
        self._received_s = 0.0
        self._next_call = self._next_refusal = 0
        self._by_model: dict[str, ModelTally] = {}
        self._refused: dict[_RefusalKey, CallRefused] = {}
        self._free_failures = 0
        self._cap: str | None = None
        self._on_cap: Callable[[str], None] = lambda _reason: None
        self._emitted: ModelCalls | None = ModelCalls()
        self._emitted_s = 0.0

    def begin(
        self, journal: Journal, store: Store, emit: Emit, on_cap: Callable[[str], None] = lambda _reason: None
    ) -> None:
        """Write into this journal from now on, and emit what it holds already.

        `on_cap`: called when the spend cap is reached, or now if it was reached before.
        """
        calls, refusals = recorded_gateway_events(store, journal.run_id)
        first = sum(tally.calls for tally in calls.by_model.values())  # each has a number, from 0
        beyond = store.attempts(journal.run_id, GATEWAY, first)
        with self._lock:
            self._journal, self._emit, self._on_cap = journal, emit, on_cap
            self._next_call = max((attempt.number + 1 for attempt in beyond), default=first)
            self._next_refusal = end_of(store, journal.run_id, GATEWAY)
            self._by_model = dict(calls.by_model)
            self._refused = {(event.what, event.reason): event for event in refusals}
            early, self._early = self._early, []
            cap = self._cap
        for event in refusals[:REFUSALS_EMITTED]:
            emit(event)
        for message in early:
            self.receive(message)
        if cap is not None:
            on_cap(cap)

    def receive(self, message: GatewayMessage) -> None:
        """Record a call that ended, or a refusal; never waits for the store."""
        with self._lock:
            self._received_s = time.monotonic()
            if self._ended:
                return
            if self._journal is None:
                self._early.append(message)
                return
            journal, event = self._journal, None
            try:
                if isinstance(message, ModelCallMessage):
                    self._called(journal, message)
                else:
                    event = self._was_refused(journal, message)
            except Interrupted:  # nothing can be written any more, which the driver knows
                self._ended = True
        if isinstance(message, ModelCallMessage):
            journal.spending.started(MODEL_CALL)
            journal.spending.finished(MODEL_CALL, message.usage, 1, _unpriced(message))  # may cancel the run
        if event is not None:
            self._emit(event)

    def capped(self, reason: str) -> None:
        """Report that the gateway holds all further calls; safe to call from any thread."""
        with self._lock:
            self._cap = reason
            on_cap = self._on_cap
        on_cap(reason)

    def news(self, *, at_once: bool = False) -> ModelCalls | None:
        """Return the totals, unless they are unchanged or were returned a moment ago."""
        now = time.monotonic()
        with self._lock:
            if not at_once and now - self._emitted_s < EVERY_S:
                return None
            reading = _reading(self._by_model, sum(refused.times for refused in self._refused.values()))
            if reading == self._emitted:
                return None
            self._emitted, self._emitted_s = reading, now
        return reading

    def quiet_for(self) -> float:
        """Return the seconds since the last call or refusal."""
        with self._lock:
            return time.monotonic() - self._received_s

    def settle(self) -> None:
        """Wait a moment for calls of completed work, as long as some keep arriving."""
        until = time.monotonic() + LONGEST_S
        asked = time.monotonic()
        while (left := STRAGGLERS_S - min(self.quiet_for(), time.monotonic() - asked)) > 0 and time.monotonic() < until:
            time.sleep(left)

    def end(self) -> None:
        """Write nothing from now on."""
        with self._lock:
            self._ended = True

    # --- what is written ---------------------------------------------------------------------------------------------

    def _called(self, journal: Journal, call: ModelCallMessage) -> None:
        name, made = self._name(journal, call), _tally(call.outcome, 1, call.usage or {}, _unpriced(call))
        self._by_model[name] = _sum([self._by_model.get(name, ModelTally()), made])
        if call.is_free:
            self._free_failures += 1
            if self._free_failures > FAILURES_KEPT:
                return
        number, self._next_call = self._next_call, self._next_call + 1
        sandbox = journal.secrets.redact_text(one_line(call.sandbox, NAME_SHOWN))
        begun = Attempt(GATEWAY, number, 1, MODEL_CALL, name, sandbox)
        succeeded = int(call.outcome == "ok")
        ended = replace(begun, outcome=call.outcome, seconds=call.seconds, usage=call.usage, examples=succeeded)
        journal.storage.write(begun, replace(ended, unpriced=_unpriced(call)))

    def _name(self, journal: Journal, call: ModelCallMessage) -> str:
        """Return `provider/model`, or `OTHERS` beyond `MODELS_KEPT`: programs may invent model names."""
        name = journal.secrets.redact_text(one_line(f"{call.provider}/{call.model or '-'}", NAME_SHOWN))
        known = name in self._by_model or len(self._by_model) < MODELS_KEPT
        return name if known else OTHERS

    def _was_refused(self, journal: Journal, refusal: CallRefused) -> CallRefused | None:
        """Write an entry, and return the event with all such refusals; None beyond `REFUSALS_EMITTED`."""
        redacted = {name: journal.secrets.redact_text(getattr(refusal, name)) for name in ("sandbox", "what", "reason")}
        refused = refusal.model_copy(update=redacted)
        answer = orjson.dumps(refused.model_dump(include={*redacted, "times"}))
        about = f"refuse {refused.what} to {refused.sandbox}: {refused.reason}"
        number, self._next_refusal = self._next_refusal, self._next_refusal + 1
        digest = digest_of([refused.what, refused.reason])
        journal.storage.write(Entry(GATEWAY, number, REFUSAL, digest, about, answer))
        event = _add(self._refused, refused)
        return event if len(self._refused) <= REFUSALS_EMITTED else None


def recorded_gateway_events(store: Store, run_id: str) -> tuple[ModelCalls, list[CallRefused]]:
    """Return the totals of a run's model calls, and each different refusal once, from its store."""
    by_model = {
        endpoint: _sum(_tally(spent.outcome, spent.attempts, asdict(spent), spent.unpriced) for spent in spending)
        for endpoint, spending in store.spending_at(run_id, MODEL_CALL).items()
    }
    refused: dict[_RefusalKey, CallRefused] = {}
    for entry in entries(store, run_id, GATEWAY):
        if entry.kind != REFUSAL:
            continue
        _add(refused, CallRefused.model_validate_json(entry.answer))
    return _reading(by_model, sum(event.times for event in refused.values())), list(refused.values())


def _add(known: dict[_RefusalKey, CallRefused], refused: CallRefused) -> CallRefused:
    """Add a refusal to those of its key, and return them as one."""
    key = refused.what, refused.reason
    before = known.get(key)
    known[key] = refused if before is None else before.model_copy(update={"times": before.times + refused.times})
    return known[key]


def _reading(by_model: Mapping[str, ModelTally], refused: int) -> ModelCalls:
    return ModelCalls(total=_sum(by_model.values()), by_model=dict(by_model), refused=refused)


def _sum(tallies: Iterable[ModelTally]) -> ModelTally:
    each = list(tallies)
    return ModelTally(**{name: sum(getattr(tally, name) for tally in each) for name in ModelTally.model_fields})


def _tally(outcome: str | None, calls: int, amounts: Mapping[str, Any], unpriced: int) -> ModelTally:
    """Return what calls of this outcome came to; `amounts`: the tokens and the cost that are known."""
    known = {name: amounts.get(name) or 0 for name in ("input_tokens", "output_tokens", "cost_usd")}
    return ModelTally(calls=calls, failed=0 if outcome == "ok" else calls, unpriced=unpriced, **known)


def _unpriced(call: ModelCallMessage) -> int:
    return int(call.cost_usd is None and not call.is_free)


def record_late_calls(
    where: str, run_id: str, secrets: Sequence[str], messages: Sequence[GatewayMessage]
) -> list[Event]:
    """Write calls that ended after the driver into the run's journal; return the events of the new totals and refusals.

    `where`: the run's store. `secrets`: texts that must not be written.

    Raises:
        JournalError: they cannot be written, for instance because another process drives the run by now.
    """
    failures: list[BaseException] = []
    news: list[Event] = []
    store = open_store(where)
    try:
        buffer = JournalBuffer(store, run_id, NO_OWNER, failures.append)
        try:
            journal = Journal(run_id, buffer, SpendingTotals(), CancelToken(), Secrets(secrets), metered=True)
            record = GatewayRecord()
            record.begin(journal, store, news.append)
            for message in messages:
                record.receive(message)
            record.end()
            if (calls := record.news(at_once=True)) is not None:
                news.append(calls)
        finally:
            buffer.close()
    finally:
        store.close()
    if failures:
        raise JournalError(str(failures[0]))
    return news
