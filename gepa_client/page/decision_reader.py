"""Read what GEPA decided, as the run recorded it: the candidates of its pool, and the outcome of each proposal."""

from gepa_client.analysis.proposals import Recorded, RecordedProposals
from gepa_client.evolution.names import component_texts
from gepa_client.journal import run_events
from gepa_client.journal.entries import EVENTS, CandidateRecord
from gepa_client.journal.history import event_of
from gepa_client.journal.requests import SHOWN, digest_of
from gepa_client.journal.run_events import CandidateFound, Rejected
from gepa_client.journal.store import Store
from gepa_client.journal.stored_fields import PAGE
from gepa_client.page.event_log import EventLog
from gepa_client.page.initial_rows import InitialRows
from gepa_client.page.page_events import Candidate, CodeVersion, Proposal
from gepa_client.page.page_fact import sent_text
from protocol.code import code_at

SENT_AT_ONCE = 50
"""Candidates after which those that were read are sent: a page draws the first while the others are read."""

DETAILS_SENT = 2_000
"""Characters of the details of a failed step, from their end."""


class DecisionReader:
    """The decisions of one run; `read` adds what is new.

    `candidates`: those of the store, by index; `indices`: theirs, by the digest of their texts. `proposals`: all of
    them.
    """

    def __init__(self, store: Store, run_id: str, log: EventLog, rows: InitialRows) -> None:
        self._store, self._id, self._log, self._rows = store, run_id, log, rows
        self.candidates: list[CandidateRecord] = []
        self.indices: dict[str, int] = {}
        self.proposals = RecordedProposals()
        self._next = 0

    def read(self) -> None:
        """Read new decisions."""
        more = True
        while more:
            page = self._store.entries(self._id, EVENTS, self._next, PAGE)
            more = len(page) == PAGE
            for entry in page:
                event = event_of(entry)
                if isinstance(event, CandidateFound) and not self._is_read(event.index):
                    return  # a process ended between the two, in a database without transactions
                self._next = entry.number + 1
                self._add(event)

    def _is_read(self, index: int) -> bool:
        """Return whether the store has a candidate; the last one is read anew, as the driver may have completed it."""
        if index >= len(self.candidates) - 1:
            for kept in self._store.candidates(self._id, max(0, len(self.candidates) - 1)):
                self.candidates[kept.index :] = [kept]
                self.indices.setdefault(digest_of(kept.texts), kept.index)
        return index < len(self.candidates)

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
            scores=list(map(kept.scores.get, self._rows.names)),
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
            why=one.why,
            candidate=one.candidate,
            digest=digest,
            mutation=None if one.made is None else one.made.mutation,
        )


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
