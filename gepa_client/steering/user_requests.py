"""Users' requests to a run: added to its queue in the store, checked, answered by its driver; a stop is awaited."""

import getpass
import socket
import time
import uuid
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from pydantic import ValidationError

from evolverpc_common.display_text import command
from gepa_client.analysis.ties import best_of
from gepa_client.errors import SteeringRefused, StoreUnavailable
from gepa_client.journal.entries import CONTROL, STEER, RequestOutcome, SteeringRequest, StoredRun, now
from gepa_client.journal.export_format import mistakes
from gepa_client.journal.lease import lease_seconds
from gepa_client.journal.requests import request_key
from gepa_client.journal.steer_entries import (
    AnyAction,
    Cancel,
    Drop,
    Hint,
    Pause,
    Pin,
    Propose,
    SetBudget,
    SteerEntry,
    Withdraw,
    action_of,
    described,
)
from gepa_client.journal.store import Store, named_store
from gepa_client.journal.stored_fields import OVER
from gepa_client.settings.run_config import ENDINGS
from gepa_client.settings.shell_arguments import NO_LIMIT, flags_to_continue
from protocol.code import CODE_COMPONENTS


@dataclass(frozen=True)
class RequestContext:
    """What requests are checked against.

    `candidates`: texts by index. `best`: index of the best one that is not dropped. `pinned`: None if none is, or if
    that is not known. `max_tokens`: of a component's text. `program_proposes`: no language model does. `used`: by
    limit, what a new value of it must exceed. `fixed`: limits that cannot change while the run is driven, with the
    reason.
    `proposals`: ids of proposals by hand that were taken and not evaluated; None if they are not known.
    """

    candidates: Sequence[Mapping[str, str]]
    best: int
    dropped: Set[int] = frozenset()
    pinned: int | None = None
    max_tokens: int | None = None
    program_proposes: bool = False
    used: Mapping[str, float] = field(default_factory=dict)
    fixed: Mapping[str, str] = field(default_factory=dict)
    proposals: Set[str] | None = None


def objection(action: AnyAction, situation: RequestContext) -> str | None:
    """Return why an action cannot be taken, and what to do instead; None if it can."""
    match action:
        case Propose():
            return _against_proposal(action, situation)
        case Withdraw():
            if situation.proposals is not None and action.request not in situation.proposals:
                return f"no proposal by hand {action.request} waits to be evaluated"
        case Pin():
            if action.candidate in situation.dropped:
                return f"candidate {action.candidate} was dropped, so it is no parent: pin another one"
            return _unknown(action.candidate, situation)
        case Drop():
            return _against_drop(action.candidate, situation)
        case Hint() if situation.program_proposes:
            return "the program itself proposes new texts, and reads no hints: hints need a run with `reflection_lm`"
        case SetBudget():
            return _against_budget(action, situation)
    return None


def _unknown(index: int, situation: RequestContext) -> str | None:
    if index < len(situation.candidates):
        return None
    return f"the run has no candidate {index}: it has 0 to {len(situation.candidates) - 1}"


def _against_proposal(action: Propose, situation: RequestContext) -> str | None:
    parent = situation.best if action.parent is None else action.parent
    if (unknown := _unknown(parent, situation)) is not None:
        return unknown
    if parent in situation.dropped:
        return f"candidate {parent} was dropped, so it is no parent: name another one"
    from gepa_client.gepa.reflection_prompt import tokens_of  # heavy

    before = situation.candidates[parent]
    texts = [name for name in before if name not in CODE_COMPONENTS]
    for name, text in action.texts.items():
        if name in CODE_COMPONENTS:
            return f"{name} is code: only texts are proposed by hand"
        if name not in texts:
            return f"the program has no component {name!r} (it has {', '.join(texts)})"
        if not text.strip():
            return f"the text of {name} is empty"
        if situation.max_tokens is not None and (size := tokens_of(text)) > situation.max_tokens:
            limit = f"`max_component_tokens` {situation.max_tokens:,}"
            return f"the text of {name} has about {size:,} tokens, more than {limit} allows"
    if all(text.strip() == before[name].strip() for name, text in action.texts.items()):
        return f"candidate {parent} has these texts already"
    return None


def _against_drop(index: int, situation: RequestContext) -> str | None:
    if (unknown := _unknown(index, situation)) is not None:
        return unknown
    if index in situation.dropped:
        return f"candidate {index} was dropped before"
    if index == situation.pinned:
        return f"candidate {index} is pinned: unpin it first"
    if len(situation.candidates) - len(situation.dropped) == 1:
        return f"candidate {index} is the only one left: a run needs one that is not dropped"
    return None


def _against_budget(action: SetBudget, situation: RequestContext) -> str | None:
    if not action.limits:
        return "a budget names at least one limit: metric calls, cost or seconds"
    for name, value in action.limits.items():
        if name in situation.fixed:
            return situation.fixed[name]
        if value <= (used := situation.used.get(name, 0)):
            return (
                f"`{name}` {value:,.12g} is not above the {used:,.6g} that the run has used: "
                "give more, or pause the run"
            )
    return None


MOST_WAITING = 100
"""Requests of a run that may wait at once."""


def author() -> str:
    """Return `user@host` of this process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def request(
    store: Store, run_id: str, action: AnyAction, *, request_id: str | None = None, by: str | None = None
) -> SteeringRequest:
    """Queue an action for the driver of a run and return the request; the same id and action are queued once.

    `pause` and `cancel` reach a driver with its next heartbeat, the others between two iterations. `request_id`: at
    most 80 letters, digits, `-` and `_`; None for a new one. `by`: None for this process's user.

    Raises:
        SteeringRefused: the run is over, cannot do this, or too many requests wait. RequestExists: another request has
            this id. NoSuchRun, StoreUnavailable: as the store.
    """
    run = store.run(run_id)
    asked = request_id or uuid.uuid4().hex
    known = {each.id: each for each in store.requests(run_id)}
    written = action.model_dump(mode="json", exclude_none=True)
    made = SteeringRequest(asked, written, by or author(), now())
    if asked in known:
        store.add_request(run_id, made)
        return known[asked]
    waiting = sum(each.outcome is None for each in known.values())
    if (reason := _refusal(store, run, action, waiting)) is not None:
        raise SteeringRefused(reason)
    store.add_request(run_id, made)
    return made


def _refusal(store: Store, run: StoredRun, action: AnyAction, waiting: int) -> str | None:
    if run.status in OVER and (not isinstance(action, Cancel) or run.status == "completed"):
        further = flags_to_continue(run) if run.status == "completed" else []
        if run.status == "completed" and not further:
            return f"run {run.id} is completed, and no process drives it: {NO_LIMIT}"
        again = run.resumed_by or command("resume", run.id, *further, store=named_store(store.url))
        return f"run {run.id} is {run.status}, and no process drives it: continue it, then ask again: {again}"
    if isinstance(action, Pause) and run.claim.owner is None and run.status != "running":
        return f"run {run.id} is {run.status}, and no process drives it: there is nothing to pause"
    if waiting >= MOST_WAITING:
        return f"{waiting} requests to run {run.id} wait already: wait until it has taken some"
    candidates = store.candidates(run.id)
    if not candidates:  # checked when it is taken
        return None
    dropped = {kept.index for kept in candidates if kept.dropped is not None}
    counters, config = run.counters, run.config
    situation = RequestContext(
        candidates=[kept.texts for kept in candidates],
        best=best_of([kept.score for kept in candidates], dropped),
        dropped=dropped,
        max_tokens=config.get("max_component_tokens"),
        program_proposes=config.get("reflection_lm") is None,
        used={name: counters.get(limit.counter) or 0 for name, limit in ENDINGS.items()},
    )
    return objection(action, situation)


@dataclass(frozen=True)
class WaitingRequests:
    """The requests that wait for a run, read where its driver can take them.

    A request that the store does not give, or an outcome that it does not take, waits for the next reading: the
    heartbeat notices a store that is away.
    """

    store: Store
    run_id: str

    def read(self) -> list[SteeringRequest]:
        """Return the requests that wait, in order, without those that stop the run."""
        with suppress(StoreUnavailable):
            return [each for each in self.store.requests(self.run_id, waiting=True) if each.stops is None]
        return []

    def answer(
        self, request_id: str, outcome: RequestOutcome, *, number: int | None = None, reason: str | None = None
    ) -> None:
        """Write the outcome of a request; the entry of one that was taken states so too, if the store is away now."""
        with suppress(StoreUnavailable):
            self.store.answer_request(self.run_id, request_id, outcome, number=number, reason=reason)


PAUSE: Literal["pause"] = "pause"
CANCEL: Literal["cancel"] = "cancel"

LOOK_EVERY_S = 0.2

STATUS = {PAUSE: "paused", CANCEL: "cancelled"}

STOPPED = {PAUSE: ("completed", "cancelled", "paused", "failed"), CANCEL: ("completed", "cancelled")}
"""Statuses of a run without a driver that need no further stop."""

BY_HAND = {PAUSE: "paused by hand", CANCEL: "cancelled by hand"}


def record_stop(store: Store, run_id: str, owner: str, status: str) -> None:
    """Record the requests that stopped a run, as its driver `owner`, and refuse those that it cannot take any more.

    `status`: the one that the run ends with. Raises: as `Store.write`.
    """
    number = store.parts(run_id).get(CONTROL, 0)
    for asked in store.requests(run_id, waiting=True):
        kind = asked.stops
        if kind is not None and status == STATUS[kind]:
            action = Pause() if kind == "pause" else Cancel()
            made = SteerEntry(id=asked.id, action=action, author=asked.author, created=asked.created)
            key = request_key(STEER, described(action), asked.id)
            answer = made.model_dump_json().encode()
            store.write(run_id, owner, [key.answered(CONTROL, number, answer)])
            store.answer_request(run_id, asked.id, "taken", number=number)
            number += 1
        elif kind == "pause" or status in OVER:
            store.answer_request(run_id, asked.id, "refused", reason=f"the run was {status} before it was taken")


def stop(store: Store, run: StoredRun, wanted: Pause | Cancel, wait_s: float) -> tuple[StoredRun, SteeringRequest]:
    """Request the stop and wait; end a run here whose lease is free or has not moved for its duration.

    Clocks of two machines are never compared, only whether the lease moves while this process waits. Returns the run as
    it is then, and the request; the run has stopped if no process drives it.

    Raises: as `request`.
    """
    action = wanted.kind
    owner = f"{action}-{uuid.uuid4().hex}"
    lease_s = lease_seconds(run)
    made = request(store, run.id, wanted)
    until = time.monotonic() + wait_s
    seen, since = run.claim, time.monotonic()
    while True:
        run = store.run(run.id)
        if run.claim.owner is None and run.status in STOPPED[action]:
            store.answer_request(run.id, made.id, "refused", reason=f"the run was {run.status} before it was taken")
            return run, made
        if run.claim != seen:
            seen, since = run.claim, time.monotonic()
        if (seen.owner is None or time.monotonic() - since >= lease_s) and store.claim(
            run.id, seen, owner, f"evolverpc {action}"
        ):
            try:
                record_stop(store, run.id, owner, STATUS[action])
                store.update(run.id, {"status": STATUS[action], "reason": BY_HAND[action]}, owner=owner)
            finally:
                store.release(run.id, owner)
            return store.run(run.id), made
        if time.monotonic() >= until:
            return run, made
        time.sleep(LOOK_EVERY_S)


def post_request(store: Store, run_id: str, posted: Any) -> dict[str, Any]:
    """Queue the action that `posted` describes, as JSON of `steer_entries.Action`; return the request as JSON.

    A `cancel` ends a run that no process drives at once.

    Raises:
        ValueError: it describes no action; the message states why. SteeringRefused: the run cannot do it.
        NoSuchRun, StoreUnavailable: as the store.
    """
    try:
        action = action_of(posted)
    except ValidationError as error:
        raise ValueError(mistakes(error, "the request")) from None
    made: SteeringRequest
    if isinstance(action, Pause | Cancel):
        made = stop(store, store.run(run_id), action, wait_s=0)[1]
    else:
        made = request(store, run_id, action)
    return asdict(made)
