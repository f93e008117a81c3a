"""The queue of users' requests in the store: they are added by any process, and read by the driver of the run."""

import getpass
import socket
import uuid
from contextlib import suppress

from evolverpc_common.display_text import command
from gepa_client.analysis.ties import best_of
from gepa_client.errors import SteeringRefused, StoreUnavailable
from gepa_client.journal.entries import RequestOutcome, SteeringRequest, StoredRun, now
from gepa_client.journal.steer_entries import AnyAction, Cancel, Pause
from gepa_client.journal.store import Store, named_store
from gepa_client.journal.stored_fields import OVER
from gepa_client.settings.raised_limits import NO_LIMIT, flags_to_continue
from gepa_client.settings.run_config import ENDINGS
from gepa_client.steering.objections import RequestContext, objection

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
    if (
        reason := _refusal(store, run, action, len([each for each in known.values() if each.outcome is None]))
    ) is not None:
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


class WaitingRequests:
    """The requests that wait for a run, read where its driver can take them.

    A request that the store does not give, or an outcome that it does not take, waits for the next reading: the
    heartbeat notices a store that is away.
    """

    def __init__(self, store: Store, run_id: str) -> None:
        self._store = store
        self._run_id = run_id

    def read(self) -> list[SteeringRequest]:
        """Return the requests that wait, in order, without those that stop the run."""
        with suppress(StoreUnavailable):
            return [each for each in self._store.requests(self._run_id, waiting=True) if each.stops is None]
        return []

    def answer(
        self, request_id: str, outcome: RequestOutcome, *, number: int | None = None, reason: str | None = None
    ) -> None:
        """Write the outcome of a request; the entry of one that was taken states so too, if the store is away now."""
        with suppress(StoreUnavailable):
            self._store.answer_request(self._run_id, request_id, outcome, number=number, reason=reason)
