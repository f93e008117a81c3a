"""Read what GEPA decided, as the run recorded it, in step with the entries that were read."""

from evolverpc_common.display_text import line
from gepa_client.journal import run_events
from gepa_client.journal.entries import EVENTS, SEARCH
from gepa_client.journal.history import event_of
from gepa_client.journal.store import Store
from gepa_client.journal.stored_fields import PAGE
from gepa_client.page.entry_reader import EntryReader
from gepa_client.page.event_log import EventLog
from gepa_client.page.pool_reader import PoolReader
from gepa_client.page.proposal_reader import ProposalReader
from gepa_client.page.search_events import PoolState, Reflection


class DecisionReader:
    """The decisions of one run. `decided`: all of them below this place were added."""

    def __init__(self, store: Store, run_id: str, log: EventLog, pool: PoolReader, entries: EntryReader) -> None:
        self._store, self._id, self._log = store, run_id, log
        self._pool, self._entries = pool, entries
        self.proposals = ProposalReader(pool)
        self.model: str | None = None
        """The reflection model; None if the program proposes."""
        self.decided = 0
        self._next = 0

    def read(self, *, wait: bool) -> bool:
        """Add new decisions; return whether there are more.

        `wait`: only those whose entries and candidates have been read: others are read soon.
        """
        page = self._store.entries(self._id, EVENTS, self._next, PAGE)
        for entry in page:
            event = event_of(entry)
            is_new = isinstance(event, run_events.CandidateFound) and event.index >= len(self._pool.candidates)
            if is_new or (wait and (event.at or 0) > self._entries.ordered):
                return False
            self._next = entry.number + 1
            self.decided = event.at or 0
            self._add(event)
        return len(page) == PAGE

    def _add(self, event: run_events.Event) -> None:
        add, at = self._log.add, event.at or 0
        for found in self.proposals.read(event):
            add(found)
        match event:
            case run_events.CandidateFound():
                add(PoolState(at=at, front=event.front, best=event.best))
                add(run_events.Budget(at=at, metric_calls=event.metric_calls))
            case run_events.Budget() | run_events.NoProposal():
                add(event)
            case run_events.ProposalMade():
                self._add_reflections(event)
            case run_events.StepFailed():
                message = line(f"iteration {event.iteration}: {event.step} failed: {event.message}")
                add(run_events.Warned(at=at, message=message))
            case run_events.Steered() if event.best is not None:
                add(PoolState(at=at, front=event.front, best=event.best))
            case _:
                pass

    def _add_reflections(self, event: run_events.ProposalMade) -> None:
        """Add the answers that a proposal was read from, with what they took."""
        numbers = [answer.number for answer in event.answers]
        ends = {end.number: end for end in self._store.finished_at(self._id, SEARCH, numbers)} if numbers else {}
        for answer in event.answers:
            end = ends.get(answer.number)
            usage = (end.usage if end is not None else None) or {}
            self._log.add(
                Reflection(
                    at=answer.number,
                    proposal=event.proposal,
                    component=answer.component,
                    model=self.model,
                    again=answer.again,
                    input_tokens=_count(usage.get("input_tokens")),
                    output_tokens=_count(usage.get("output_tokens")),
                    cost_usd=usage.get("cost_usd"),
                    seconds=end.seconds if end is not None else None,
                )
            )


def _count(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
