"""Read a run's store as it grows, and turn what is new, its totals and its summary into events of the page."""

import time
from collections.abc import Sequence
from dataclasses import replace

import orjson

from evolverpc_common.display_text import one_line
from gepa_client.analysis.explanation import Explanation, explain
from gepa_client.analysis.failed_examples import failed_examples
from gepa_client.analysis.proposals import excerpt
from gepa_client.certificate.certificate import certify
from gepa_client.errors import JournalError, NoCertificate, NoSuchRun
from gepa_client.journal.answer_entries import MutationEntry
from gepa_client.journal.entries import EVALUATE, MUTATION, SEARCH, STOP, Entry, StoredRun
from gepa_client.journal.history import entries_at
from gepa_client.journal.requests import SHOWN
from gepa_client.journal.run_events import FailureGroup
from gepa_client.journal.store import Store, named_store
from gepa_client.journal.stored_fields import OVER, PAGE
from gepa_client.page.decision_reader import DecisionReader
from gepa_client.page.event_log import EventLog
from gepa_client.page.initial_rows import InitialRows
from gepa_client.page.moment_events import (
    FailureCounts,
    Notices,
    Position,
    SpendingSoFar,
    StatedFact,
    StoreTrouble,
    Summary,
    SummaryTable,
)
from gepa_client.page.notices import NoticeInput
from gepa_client.page.page_events import Mutation, Results
from gepa_client.page.page_fact import TEXT_SENT, sent_text, shown
from gepa_client.page.record_reader import HeartbeatReader, run_event, steers
from gepa_client.report import summary_fields as fields
from gepa_client.report.event_words import failure_messages, failure_places
from gepa_client.report.no_improvement import no_improvement
from gepa_client.run.recorded_run import view_of
from gepa_client.run.run_view import RunView

LIVE_POLL_S = 0.1
IDLE_POLL_S = 1.0
NEW_POLL_S = 0.2
"""Of a run that is about to begin, or that is not there yet."""


class RunReader:
    """One run of a store; `poll` adds what is new to the log. Used by one thread.

    `url`: of the store. `ended`: the run is shown as it is recorded, though a driver may continue it.
    """

    def __init__(
        self,
        store: Store,
        url: str,
        run_id: str,
        log: EventLog,
        *,
        ended: bool = False,
    ) -> None:
        self._store, self._named, self._id, self._log = store, named_store(url), run_id, log
        self._is_ended = ended
        self._rows = InitialRows(store, run_id, log)
        self._decisions = DecisionReader(store, run_id, log, self._rows)
        self._heartbeats = HeartbeatReader(self._rows, self._decisions)
        self._entries = EntryReader(store, run_id, log, self._rows, self._decisions)
        self._totals = TotalsReader(store, run_id, log, self._rows)
        self._ended: tuple[str, str] | None = None
        """The status of the run, and when it had it, by the end that was read last."""
        self._trouble: str | None = None

    def poll(self) -> float:
        """Add what is new; return after how many seconds to poll again.

        What the store raises becomes an event.
        """
        try:
            run = self._store.run(self._id)
            driven = not self._is_ended and run.claim.owner is not None
            more = self._read(run, driven=driven)
        except NoSuchRun as error:
            self._add_trouble(str(error), gone=True)
            return NEW_POLL_S
        except JournalError as error:
            self._add_trouble(str(error), gone=False)
            return IDLE_POLL_S
        if self._trouble is not None:
            self._trouble = None
            self._log.add(StoreTrouble(problem=None, gone=False))
        self._log.published()
        if more:
            return 0.0
        if driven:
            return LIVE_POLL_S
        return NEW_POLL_S if run.status == "pending" else IDLE_POLL_S

    def _add_trouble(self, problem: str, *, gone: bool) -> None:
        self._trouble = problem
        self._log.add(StoreTrouble(problem=problem, gone=gone))
        self._log.published()

    def _read(self, run: StoredRun, *, driven: bool) -> bool:
        """Read everything once, what the first paint needs first; return whether there is more to read at once."""
        self._rows.read()
        self._read_moment(run, driven=driven)
        self._log.published()
        more = False
        if self._rows.val:
            self._decisions.read()
            self._log.published()
            more = self._entries.read()
        for steer in steers(self._store, run, self._decisions.proposals):
            self._log.add(steer)
        ended = not driven and not more
        if ended and self._ended != (run.status, run.updated):
            self._log.add(Position(end=self._entries.end, complete=False))  # what follows takes seconds of a long run
            self._log.published()
            self._totals.read(at_once=True)
            self._ended = (run.status, run.updated)
            if (summary := ending(self._store, run)) is not None:
                self._log.add(summary)
            self._read_moment(run, driven=driven)  # its failures are known now
        else:
            self._totals.read()
        self._log.add(Position(end=self._entries.end, complete=ended))
        return more

    def _read_moment(self, run: StoredRun, *, driven: bool) -> None:
        url, end = self._store.url, self._entries.end
        stated = run_event(run, self._rows, end=end, url=url, named=self._named, driven=driven)
        now = self._heartbeats.event(run, driven=driven)
        failures = self._totals.failures
        situation = NoticeInput(stated, now, failures, self._seed_failed(failures), self._named)
        if situation.stuck_s is not None:
            now.seconds_left = None
        for event in (stated, now, Notices(notices=situation.notices())):
            self._log.add(event)

    def _seed_failed(self, failures: FailureCounts | None) -> bool:
        """Return whether the program failed on every example, or with the seed on every validation row."""
        if failures is None:
            return False
        seed = next(iter(self._decisions.indices), "")[:SHOWN]
        return failures.failed >= failures.evaluated or len({*failures.cells.get(seed, ())}) == len(self._rows.val)


def ending(store: Store, run: StoredRun) -> Summary | None:
    """Return what a run came to; None if it has not evaluated an example."""
    if run.status == "pending" or run.identity is None:
        return None
    view = view_of(store, run)
    if run.status in OVER and view.sealed is not None:
        try:
            view.certificate = certify(store, run)
        except NoCertificate as error:
            view.no_certificate = str(error)
    return summary_of(view, explain(store, run))


def summary_of(view: RunView, explained: Explanation | None) -> Summary:
    """Return the summary; `explained`: None if the run holds no candidate."""
    facts = fields.summary_facts(view)
    if view.finalized is not None:
        answer = view.finalized.error or view.finalized.message or "no message"
        facts.append(("finalize failed" if view.finalized.error else "finalize", one_line(answer)))
    headline = view.headline()
    validation = view.certificate.validation if view.certificate is not None else None
    return Summary(
        best=view.best.index if view.best is not None else None,
        test=headline if headline is not None and headline.of_test else None,
        compared=view.whole_validation(),
        low=validation.low if validation is not None else None,
        high=validation.high if validation is not None else None,
        story=fields.story(view, explained),
        certificate=_stated(fields.certificate_facts(view)),
        no_improvement=_stated(no_improvement(view)),
        facts=_stated(facts),
        tables=[
            SummaryTable(heading=heading, columns=list(columns), rows=[list(row) for row in rows])
            for heading, columns, rows in fields.tables(view)
        ],
    )


def _stated(facts: Sequence[tuple[str, str]]) -> list[StatedFact]:
    return [StatedFact(label=label, text=text) for label, text in facts]


TOTALS_SHARE = 0.05
"""The part of the time that reading totals anew may take: they grow with the run."""

LEAST_PAUSE_S = 1.0


class TotalsReader:
    """The totals of one run."""

    def __init__(self, store: Store, run_id: str, log: EventLog, rows: InitialRows) -> None:
        self._store, self._id, self._log, self._rows = store, run_id, log, rows
        self._next = 0.0
        self._outcomes: object = None
        self.failures: FailureCounts | None = None
        """The last that were read."""

    def read(self, *, at_once: bool = False) -> None:
        """Read the totals if they are due, after a pause that grows with the time that reading them took.

        `at_once`: in any case; what is shown of a run that has ended is whole.
        """
        began = time.monotonic()
        if not at_once and began < self._next:
            return
        spending = self._store.spending(self._id)
        heading, columns, rows = fields.spending_table(spending)
        heading = f"{heading}: {fields.tokens_text(spending)}"
        table = SummaryTable(heading=heading, columns=[*columns], rows=[[*row] for row in rows])
        self._log.add(SpendingSoFar(cost=fields.whole_cost(spending), table=table))
        outcomes = [(spent.kind, spent.outcome, spent.attempts) for spent in spending if spent.outcome != "ok"]
        if outcomes and (at_once or outcomes != self._outcomes):
            self._outcomes = outcomes
            self._add_failures()
        ended = time.monotonic()
        self._next = ended + max(LEAST_PAUSE_S, (ended - began) / TOTALS_SHARE)
        self._log.published()

    def _add_failures(self) -> None:
        cells: dict[str, list[int]] = {}

        def add(entry: Entry) -> None:
            if entry.part == SEARCH and (place := self._rows.places.get(entry.row)) is not None:
                cells.setdefault(entry.candidate[:SHOWN], []).append(place)

        failed = failed_examples(self._store, self._id, add)
        if failed is not None:
            self.failures = FailureCounts(
                failed=failed.failed,
                evaluated=failed.evaluated,
                groups=failed.groups,
                words=list(map(_words, failed.groups)),
                cells=cells,
            )
            self._log.add(self.failures)


def _words(group: FailureGroup) -> str:
    return "; ".join(filter(None, (failure_places(group), failure_messages(group))))


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
