"""The requests of users that a recorded run took."""

from dataclasses import dataclass

from gepa_client.journal.entries import CONTROL, SEARCH, STEER, StoredRun
from gepa_client.journal.history import entries, entries_at
from gepa_client.journal.steer_entries import SteerEntry
from gepa_client.journal.store import Store


@dataclass(frozen=True)
class TakenRequest:
    """An entry that a request made. `part`: `search`, or `control` for one that stopped the run."""

    part: str
    number: int
    entry: SteerEntry


def steered(store: Store, run: StoredRun) -> list[TakenRequest]:
    """Return the requests that a run took, in the order of its entries; those that stopped it last."""
    numbers = (
        [entry.number for entry in entries(store, run.id, SEARCH, largest=0) if entry.kind == STEER]
        if run.counters.get("steered")
        else []
    )
    return [
        TakenRequest(part, entry.number, SteerEntry.model_validate_json(entry.answer))
        for part, found in (
            (SEARCH, entries_at(store, run.id, SEARCH, numbers)),
            (CONTROL, entries(store, run.id, CONTROL)),
        )
        for entry in found
    ]
