"""Read what the search of a run recorded: its rows, what GEPA decided, and the entries with results and changes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson

from evolverpc_common.display_text import one_line
from gepa_client.analysis.copied_text import strings_in
from gepa_client.analysis.proposals import Recorded, RecordedProposals, excerpt
from gepa_client.evolution.candidate_names import component_texts
from gepa_client.journal import run_events
from gepa_client.journal.answer_entries import MutationEntry
from gepa_client.journal.entries import (
    CANDIDATE,
    EVALUATE,
    EVENTS,
    MUTATION,
    PROCESSES,
    SEARCH,
    STOP,
    CandidateRecord,
    Entry,
)
from gepa_client.journal.history import RecordedRow, entries_at, event_of, row_names, selection_rows
from gepa_client.journal.requests import SHOWN, digest_of
from gepa_client.journal.run_events import CandidateFound, Rejected
from gepa_client.journal.store import Store
from gepa_client.journal.stored_fields import PAGE
from gepa_client.page.event_log import EventLog
from gepa_client.page.page_events import (
    TEXT_SENT,
    Candidate,
    CodeVersion,
    Mutation,
    Proposal,
    Results,
    Rows,
    sent_text,
    shown,
)
from protocol.code import code_at

ROWS_SENT = 5_000
"""Ids of rows in one event."""

LABEL = 60
"""Characters of the label of a row."""

SENT_AT_ONCE = 50
"""Candidates after which those that were read are sent: a page draws the first while the others are read."""

DETAILS_SENT = 2_000
"""Characters of the details of a failed step, from their end."""

PAGES_AT_ONCE = 8
"""Pages of entries that one poll reads at most, so that what it found is sent soon."""


class SearchReader:
    """The search of one run, which adds what is new to the log; of entries it reads only answers that a page shows.

    `started`: how the first process of the run began, None before that. `val`: the validation rows in order, or the
    training rows if none were given. `places`: theirs, by their digests.
    `candidates`: those of the search, by index; `indices`: theirs, by the digest of their texts. `proposals`: all of
    them. `end`: the place after the last entry that is no stop: a resumed run takes that out, and another entry its
    number.
    """

    def __init__(self, store: Store, run_id: str, log: EventLog) -> None:
        self._store, self._id, self._log = store, run_id, log
        self.started: run_events.Started | None = None
        self.val: list[RecordedRow] = []
        self.places: dict[str, int] = {}
        self.candidates: list[CandidateRecord] = []
        self.indices: dict[str, int] = {}
        self.proposals = RecordedProposals()
        self.end = 0
        self._row_names: dict[str, str] = {}
        self._next = 0
        self._missing: set[int] = set()

    def row_name(self, digest: str) -> str:
        """Return the split and the id of the row with this digest; the beginning of the digest if there is none."""
        self._row_names = self._row_names or row_names(self._store, self._id)
        return self._row_names.get(digest, f"row {digest[:SHOWN]}")

    def read_rows(self) -> None:
        """Read how the run began, and its rows, unless they have been read."""
        if self.started is None:
            events = map(event_of, self._store.entries(self._id, PROCESSES, 0, 1))
            self.started = next((event for event in events if isinstance(event, run_events.Started)), None)
        splits = {} if self.val else selection_rows(self._store, self._id)
        if not splits:
            return
        own = "val" in splits
        self.val = splits.get("val", splits["train"])
        self.places = {digest_of(row.example): place for place, row in enumerate(self.val)}
        for start in range(0, len(self.val), ROWS_SENT):
            part = self.val[start : start + ROWS_SENT]
            ids = [row.id for row in part]
            labels = [label_of(row.data) for row in part]
            self._log.add(Rows(start=start, ids=ids, labels=labels, total=len(self.val), training=not own))

    def read_decisions(self) -> None:
        """Read new decisions, until a page of the store is empty: its bytes may limit a page, and more follow."""
        while page := self._store.entries(self._id, EVENTS, self._next, PAGE):
            for entry in page:
                decision = orjson.loads(entry.answer)
                if entry.kind == CANDIDATE:
                    kept = CandidateRecord.of(decision)
                    self.candidates.append(kept)
                    self.indices.setdefault(digest_of(kept.texts), kept.index)
                self._next = entry.number + 1
                self._add(run_events.from_fields(entry.kind, decision))

    def _add(self, event: run_events.Event) -> None:
        if isinstance(event, CandidateFound):
            self._log.add(self._candidate(event))
            if event.index % SENT_AT_ONCE == SENT_AT_ONCE - 1:
                self._log.published()
        if isinstance(event, run_events.StepFailed):
            event = event.model_copy(update={"details": (event.details or "")[-DETAILS_SENT:]})
        if isinstance(event, run_events.ShownDecision):
            self._log.add(event)
        if isinstance(event, CandidateFound | Rejected) and len(event.parents) > 1:
            self._log.add(_merge(event))
        for changed in self.proposals.apply(event):
            self._log.add(self._proposal(changed))

    def _candidate(self, found: CandidateFound) -> Candidate:
        kept = self.candidates[found.index]
        branch, commit = code_at(kept.texts)
        return Candidate(
            at=kept.number,
            index=kept.index,
            digest=digest_of(kept.texts)[:SHOWN],
            parents=kept.parents,
            iteration=kept.iteration,
            score=kept.score,
            metric_calls=kept.metric_calls,
            found=kept.found,
            cost_usd=kept.cost_usd,
            scores=[kept.scores.get(str(row.row_id)) for row in self.val],
            texts={name: sent_text(text) for name, text in component_texts(kept.texts).items()},
            code=CodeVersion(branch=branch, commit=commit) if commit is not None else None,
            front=found.front,
            best=found.best,
        )

    def _proposal(self, one: Recorded) -> Proposal:
        begun, evaluated, last = one.begun, one.evaluated, one.last
        digest = None
        if one.texts:
            digest = digest_of({**self.candidates[begun.parent].texts, **one.texts})[:SHOWN]
        return Proposal(
            key=f"proposal {one.number}",
            at=one.number,
            decided=None if last is None else last.at,
            iteration=begun.iteration,
            parents=[begun.parent],
            components=begun.components,
            size=len(begun.rows),
            before=begun.score,
            after=None if evaluated is None else evaluated.score,
            outcome="pending" if last is None else one.outcome,
            why=one.why if one.refused is None else self._why_refused(one.refused),
            candidate=one.candidate,
            digest=digest,
            mutation=None if one.made is None else one.made.mutation,
        )

    def _why_refused(self, number: int) -> str | None:
        """Return at which stage a change of code was rejected, and why."""
        for entry in entries_at(self._store, self._id, SEARCH, [number]):
            if (refused := MutationEntry.model_validate_json(entry.answer).rejected) is not None:
                return f"its change of code was rejected at stage {refused.stage}: {refused.reason}"
        return "its change of code was rejected"

    def read_entries(self) -> bool:
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
            place = self.places.get(entry.row)
            if place is not None and entry.candidate not in self.indices:
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


def label_of(data: Any) -> str:
    """Return the beginning of the first text in the data of a row as one line; empty without one."""
    return next((one_line(text[: 4 * LABEL], LABEL) for text in strings_in(data) if text.strip()), "")


def _merge(event: Rejected | CandidateFound) -> Proposal:
    """Return the merge that GEPA kept or rejected."""
    at = event.at or 0
    return Proposal(
        key=f"merge at {at}, {event.iteration}",
        at=at,
        decided=at,
        iteration=event.iteration,
        parents=event.parents,
        outcome="kept" if isinstance(event, CandidateFound) else "rejected",
        why=event.reason if isinstance(event, Rejected) else "a merge that was as good as its parents",
        candidate=event.index if isinstance(event, CandidateFound) else None,
        merge=True,
    )
