"""Entries of the requests that stopped a run, which its driver writes when it lets go of the run."""

from gepa_client.journal.entries import CONTROL, STEER, Entry
from gepa_client.journal.records import OVER
from gepa_client.journal.requests import request_key
from gepa_client.journal.steer_entries import Cancel, Pause, SteerEntry, described
from gepa_client.journal.store import Store


def record_stop(store: Store, run_id: str, owner: str, status: str) -> None:
    """Record the requests that stopped a run, as its driver `owner`, and refuse those that it cannot take any more.

    `status`: the one that the run ends with. Raises: as `Store.write`.
    """
    number = store.parts(run_id).get(CONTROL, 0)
    for asked in store.requests(run_id, waiting=True):
        kind = asked.action.get("kind")
        if (kind == "pause" and status == "paused") or (kind == "cancel" and status == "cancelled"):
            action = Pause() if kind == "pause" else Cancel()
            made = SteerEntry(id=asked.id, action=action, author=asked.author, created=asked.created)
            key = request_key(STEER, described(action), asked.id)
            answer = made.model_dump_json().encode()
            store.write(run_id, owner, [Entry(CONTROL, number, STEER, key.digest, key.about, answer)])
            store.answer_request(run_id, asked.id, "taken", number=number)
            number += 1
        elif kind == "pause" or status in OVER:
            store.answer_request(run_id, asked.id, "refused", reason=f"the run was {status} before it was taken")
