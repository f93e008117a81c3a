"""Requests to a run from outside of it: stop it, by its driver or here if it has none; queue what a page sends."""

import time
import uuid
from dataclasses import asdict
from typing import Any, Literal

from pydantic import ValidationError

from gepa_client.journal.entries import CONTROL, STEER, SteeringRequest, StoredRun
from gepa_client.journal.exported import mistakes
from gepa_client.journal.lease import lease_seconds
from gepa_client.journal.requests import request_key
from gepa_client.journal.steer_entries import Cancel, Pause, SteerEntry, action_of, described
from gepa_client.journal.store import Store
from gepa_client.journal.stored_fields import OVER
from gepa_client.steering.request_queue import request


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


PAUSE: Literal["pause"] = "pause"
CANCEL: Literal["cancel"] = "cancel"

LOOK_EVERY_S = 0.2

STATUS = {PAUSE: "paused", CANCEL: "cancelled"}

STOPPED = {PAUSE: ("completed", "cancelled", "paused", "failed"), CANCEL: ("completed", "cancelled")}
"""Statuses of a run without a driver that need no further stop."""

BY_HAND = {PAUSE: "paused by hand", CANCEL: "cancelled by hand"}


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
