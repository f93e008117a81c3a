"""Requests that a page sends as JSON."""

from dataclasses import asdict
from typing import Any

from pydantic import ValidationError

from gepa_client.journal.entries import SteeringRequest
from gepa_client.journal.exported import mistakes
from gepa_client.journal.steer_entries import Cancel, Pause, action_of
from gepa_client.journal.store import Store
from gepa_client.steering.queue import request
from gepa_client.steering.stopping import stop


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
