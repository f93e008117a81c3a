"""Stop a run from another process: ask its driver, or end it here if it has none."""

import time
import uuid
from typing import Literal

from gepa_client.journal.entries import SteeringRequest, StoredRun
from gepa_client.journal.lease import lease_seconds
from gepa_client.journal.steer_entries import Cancel, Pause
from gepa_client.journal.store import Store
from gepa_client.steering.recorded_stops import record_stop
from gepa_client.steering.request_queue import request

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
            store.update(run.id, {"requested_action": None})  # else it would stop a later extension of the run
            return store.run(run.id), made
        if run.requested_action is None:  # a driver that took the run over may have discarded it as an old one
            store.update(run.id, {"requested_action": action})
        if run.claim != seen:
            seen, since = run.claim, time.monotonic()
        if (seen.owner is None or time.monotonic() - since >= lease_s) and store.claim(
            run.id, seen, owner, f"evolverpc {action}"
        ):
            try:
                record_stop(store, run.id, owner, STATUS[action])
                ended = {"status": STATUS[action], "reason": BY_HAND[action], "requested_action": None}
                store.update(run.id, ended, owner=owner)
            finally:
                store.release(run.id, owner)
            return store.run(run.id), made
        if time.monotonic() >= until:
            return run, made
        time.sleep(LOOK_EVERY_S)
