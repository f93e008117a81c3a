"""Read the entries of the search, each once: changes of code, and results of what is no candidate."""

from collections.abc import Sequence
from dataclasses import replace

import orjson

from gepa_client.analysis.proposals import excerpt
from gepa_client.journal.entries import EVALUATE, MUTATION, SEARCH, STOP, Entry
from gepa_client.journal.history import entries_at
from gepa_client.journal.mutation_entries import MutationEntry
from gepa_client.journal.requests import SHOWN
from gepa_client.journal.store import Store
from gepa_client.journal.stored_fields import PAGE
from gepa_client.page.decision_reader import DecisionReader
from gepa_client.page.event_log import EventLog
from gepa_client.page.initial_rows import InitialRows
from gepa_client.page.page_events import Mutation, Results
from gepa_client.page.page_fact import TEXT_SENT, sent_text, shown

PAGES_AT_ONCE = 8
"""Pages of entries that one poll reads at most, so that what it found is sent soon."""


class EntryReader:
    """The entries of one run, whose answers are read only if the page shows them.

    `end`: the place after the last one that is no stop: a resumed run takes that out, and another entry its number.
    """

    def __init__(self, store: Store, run_id: str, log: EventLog, rows: InitialRows, decisions: DecisionReader) -> None:
        self._store, self._id, self._log = store, run_id, log
        self._rows, self._decisions = rows, decisions
        self.end = 0
        self._missing: set[int] = set()

    def read(self) -> bool:
        """Read new entries; return whether there are more."""
        fresh, more = self._fresh()
        changes = [entry.number for entry in fresh if entry.kind == MUTATION]
        for entry in entries_at(self._store, self._id, SEARCH, changes):
            self._log.add(self._mutation(entry))
        self._add_results([entry for entry in fresh if entry.kind == EVALUATE])
        return more

    def _fresh(self) -> tuple[list[Entry], bool]:
        """Return entries that were missing and new ones, without their answers, and whether there are more."""
        known = sorted(self._missing)[:PAGE]
        fresh = [entry for entry in entries_at(self._store, self._id, SEARCH, known) if entry.kind != STOP]
        self._missing -= {entry.number for entry in fresh}
        more, pages = True, 0
        while more and pages < PAGES_AT_ONCE:
            page = self._store.entries(self._id, SEARCH, self.end, PAGE, largest=0)
            for entry in (each for each in page if each.kind != STOP):
                self._missing.update(range(self.end, entry.number))
                self.end = entry.number + 1
                fresh.append(entry)
            more, pages = len(page) == PAGE, pages + 1
        return [replace(entry, answer=b"") for entry in fresh], more

    def _mutation(self, entry: Entry) -> Mutation:
        found = MutationEntry.model_validate_json(entry.answer)
        made, refused = found.applied, found.rejected
        usage = made.usage if made is not None else refused.usage if refused is not None else None
        diff = made.diff if made is not None else refused.diff if refused is not None else None
        return Mutation(
            at=entry.number,
            commit=made.commit if made is not None else None,
            request=sent_text(found.request),
            stage=refused.stage if refused is not None else None,
            reason=sent_text(refused.reason) if refused is not None else None,
            files=list(made.files) if made is not None else [],
            summary=sent_text(made.summary) if made is not None else None,
            cost_usd=usage.cost_usd if usage is not None else None,
            diff=excerpt(diff, TEXT_SENT),
            log=shown(refused.log_tail or None) if refused is not None else None,
        )

    def _add_results(self, evaluated: Sequence[Entry]) -> None:
        """Add the results of these entries on validation rows, without those of candidates, which have scores."""
        places: dict[int, tuple[str, int]] = {}
        for entry in evaluated:
            place = self._rows.places.get(entry.row)
            if place is not None and entry.candidate not in self._decisions.indices:
                places[entry.number] = (entry.candidate[:SHOWN], place)
        numbers = sorted(places)
        for start in range(0, len(numbers), PAGE):
            self._log.add(self._results(numbers[start : start + PAGE], places))

    def _results(self, numbers: Sequence[int], places: dict[int, tuple[str, int]]) -> Results:
        found = Results(candidates=[], rows=[], numbers=[], scores=[])
        for entry in entries_at(self._store, self._id, SEARCH, numbers):
            if entry.kind == EVALUATE:
                found.candidates.append(places[entry.number][0])
                found.rows.append(places[entry.number][1])
                found.numbers.append(entry.number)
                found.scores.append(orjson.loads(entry.answer).get("score"))
        return found
