"""Read the entries of the search in order, each once, and what small ones hold."""

from collections.abc import Sequence
from dataclasses import replace

import orjson

from evolverpc_common.display_text import line
from gepa_client.evolution.names import branch_run_name
from gepa_client.journal.entries import (
    EVALUATE,
    MUTATION,
    SEARCH,
    STEER,
    STOP,
    Entry,
)
from gepa_client.journal.history import entries_at
from gepa_client.journal.mutation_entries import MutationEntry
from gepa_client.journal.store import Store
from gepa_client.journal.stored_fields import PAGE
from gepa_client.page.ending_events import Stopped
from gepa_client.page.event_log import EventLog
from gepa_client.page.page_fact import TEXT_BEGINNING, sent_text
from gepa_client.page.pool_reader import PoolReader
from gepa_client.page.search_events import Mutation

PAGES_AT_ONCE = 8
"""Pages of entries that one poll reads at most, so that what it found is sent soon."""


class EntryReader:
    """The entries of one run. `end`: the place after the last one; `ordered`: all below this place were read."""

    def __init__(self, store: Store, run_id: str, log: EventLog, pool: PoolReader) -> None:
        self._store, self._id, self._log = store, run_id, log
        self._pool = pool
        self.end = 0
        self.ordered = 0
        self.steered: list[int] = []
        """The numbers of entries that requests of users made."""
        self.evaluated: list[Entry] = []
        """The evaluations that the last `read` found."""
        self._missing: set[int] = set()
        self._stop: int | None = None
        self._waiting: dict[int, Entry] = {}

    @property
    def shown_end(self) -> int:
        """The place after the last entry that is not a stop, which a resumed run takes out."""
        return self.end - (self._stop == self.end - 1)

    @property
    def first_missing(self) -> int:
        """The first place without an entry."""
        return min(self._missing, default=self.end)

    def read(self) -> bool:
        """Read new entries, without the answers that are not needed; return whether there are more."""
        fresh, more = self._fresh()
        for entry in fresh:
            self._missing.discard(entry.number)
            if entry.kind != STOP:
                self._waiting[entry.number] = entry
        stops = [entry.number for entry in fresh if entry.kind == STOP]
        self._missing.update(stops)  # it may be taken out, and another entry take its number
        if self._stop is not None and not stops:
            self._log.add(Stopped(at=self._stop, status=None, reason=None))
        self._stop = min(stops, default=None)
        while (entry_ := self._waiting.pop(self.ordered, None)) is not None:
            self.ordered += 1
            if entry_.kind == STEER:
                self.steered.append(entry_.number)
        self._read_answers([entry.number for entry in fresh if entry.kind in (MUTATION, STOP)])
        self.evaluated = [entry for entry in fresh if entry.kind == EVALUATE]
        return more

    def _fresh(self) -> tuple[list[Entry], bool]:
        """Return entries that were missing and new ones, and whether there are more."""
        known = sorted(self._missing)[:PAGE]
        fresh = [replace(entry, answer=b"") for entry in entries_at(self._store, self._id, SEARCH, known)]
        more = False
        for _ in range(PAGES_AT_ONCE):
            page = self._store.entries(self._id, SEARCH, self.end, PAGE, largest=0)
            for entry in page:
                self._missing.update(range(self.end, entry.number))
                self.end = entry.number + 1
            fresh += page
            more = len(page) == PAGE
            if not more:
                break
        return fresh, more

    def _read_answers(self, numbers: Sequence[int]) -> None:
        """Add what small entries hold."""
        for entry in entries_at(self._store, self._id, SEARCH, numbers):
            if entry.kind == MUTATION:
                self._add_mutation(entry)
            elif entry.kind == STOP:
                stop = orjson.loads(entry.answer)
                self._log.add(Stopped(at=entry.number, status=stop["status"], reason=stop["reason"]))

    def _add_mutation(self, entry: Entry) -> None:
        found = MutationEntry.model_validate_json(entry.answer)
        made, refused = found.applied, found.rejected
        usage = made.usage if made is not None else refused.usage if refused is not None else None
        if made is not None:
            self._pool.mutations[made.commit] = entry.number
        self._log.add(
            Mutation(
                at=entry.number,
                kind=found.kind,
                branch=f"evolve/{branch_run_name(self._id)}/{entry.number}",
                commit=made.commit if made is not None else None,
                parent_commit=found.parent,
                request=sent_text(found.request),
                location=found.location,
                stage=refused.stage if refused is not None else None,
                reason=line(refused.reason, TEXT_BEGINNING) if refused is not None else None,
                files=list(made.files) if made is not None else [],
                summary=made.summary if made is not None else None,
                cost_usd=usage.cost_usd if usage is not None else None,
            )
        )
