"""The changes of code that a store recorded of a run, read back."""

from dataclasses import dataclass

import orjson

from gepa_client.journal.entries import MUTATION, SEARCH
from gepa_client.journal.history import entries
from gepa_client.journal.mutation_entry import MutationEntry
from gepa_client.journal.store import Store


@dataclass(frozen=True)
class RecordedMutation:
    """A change of code, made or refused. `number`: in the journal, and in its branch `evolve/<run>/<number>`."""

    number: int
    entry: MutationEntry


def recorded_mutations(store: Store, run_id: str) -> list[RecordedMutation]:
    """Every mutation of the run, in the order GEPA asked."""
    return [
        RecordedMutation(entry.number, MutationEntry.model_validate(orjson.loads(entry.answer)))
        for entry in entries(store, run_id, SEARCH)
        if entry.kind == MUTATION
    ]
