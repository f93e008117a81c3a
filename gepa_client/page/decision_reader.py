"""Read GEPA's decisions from a replay beside the run, in step with the entries that were read."""

import time

from evolverpc_common.display_text import line
from evolverpc_common.settings.sources import SettingsError
from gepa_client.journal import run_events
from gepa_client.journal.entries import StoredRun
from gepa_client.page.ending_events import ScoreOnTestRows, Ties
from gepa_client.page.entry_reader import EntryReader
from gepa_client.page.event_log import EventLog
from gepa_client.page.moment_events import RunWarning
from gepa_client.page.page_fact import TEXT_BEGINNING
from gepa_client.page.pool_reader import PoolReader
from gepa_client.page.proposal_reader import ProposalReader
from gepa_client.page.recorded_decisions import KnownRun, RecordedDecisions
from gepa_client.page.replay_follower import Decided, ReplayFollower
from gepa_client.page.search_events import Iteration, MetricCalls, PoolState
from gepa_client.report.run_record import RunRecord

HELD_S = 5.0
"""Seconds that an event of the replay waits for its candidate to be read from the store."""


class DecisionReader:
    """The decisions of one run, and in `record` what its report is made from.

    `url`: of the store. `replays`: whether to start the process that replays. `known`: a run that has ended, whose
    decisions are known. `replayed`: all decisions below this place were added; None if there are none, for the
    reason `why_not`.
    """

    def __init__(
        self,
        url: str,
        log: EventLog,
        pool: PoolReader,
        entries: EntryReader,
        *,
        replays: bool,
        known: KnownRun | None,
    ) -> None:
        self._url, self._log = url, log
        self._pool, self._entries = pool, entries
        self._replays, self._known = replays, known
        self.record = RunRecord() if known is None else known.record
        self.replayed: int | None = 0
        self.why_not: str | None = None
        self._follower: ReplayFollower | RecordedDecisions | None = None
        self._followed: str | None = None
        self._held: tuple[float, Decided] | None = None

    @property
    def is_following(self) -> bool:
        """Whether a replay may report more."""
        return self._follower is not None

    def close(self) -> None:
        """End the process that replays."""
        if self._follower is not None:
            self._follower.close()
            self._follower = None

    def read(self, run: StoredRun, proposals: ProposalReader | None, *, driven: bool, more: bool) -> None:
        """Start the replay if there is something to replay, and take over what it has reported.

        `proposals`: None before the rows are recorded. `more`: entries are left to be read.
        """
        if not self._replays:
            self._not_replayed("the page was opened without it")
        if self.replayed is None and proposals is not None:
            for event in proposals.undecided(self._entries.ordered, driven=driven):
                self._log.add(event)
        if not self._replays or proposals is None:
            return
        mark = run.claim.owner or f"{run.status} {run.updated}"
        if self._follower is None and run.identity is not None and self._followed != mark:
            self._followed = mark
            try:
                self._follower = self._start(run, proposals)
                self.replayed, self.why_not = self.replayed or 0, None
            except (SettingsError, OSError) as error:
                self._not_replayed(str(error))
        while self._follower is not None and (decided := self._next(more=more)) is not None:
            if decided.error is not None:
                self._not_replayed(decided.error)
            elif decided.event is not None:
                self.replayed = max(self.replayed or 0, decided.at)
                if self._known is None:
                    self.record.apply(decided.event)
                self._decide(decided.at, decided.event, proposals)
        if self._follower is not None and self._follower.ended:
            self.close()
            if not driven:
                for event in proposals.unfinished(self._entries.end, paused=run.status == "paused"):
                    self._log.add(event)

    def _start(self, run: StoredRun, proposals: ProposalReader) -> ReplayFollower | RecordedDecisions:
        if self._known is not None:
            return RecordedDecisions(self.record)
        self.record = RunRecord()  # a replay begins with the first event
        proposals.restart()
        return ReplayFollower(self._url, run)

    def _not_replayed(self, why: str) -> None:
        self.replayed, self.why_not = None, line(why, TEXT_BEGINNING)

    def _next(self, *, more: bool) -> Decided | None:
        """Return the next event of the replay whose entries and candidate have been read."""
        held = self._held or (time.monotonic(), self._follower.next() if self._follower is not None else None)
        since, decided = held
        if decided is None:
            return None
        event = decided.event
        unread = self._entries.ordered < decided.at or (
            isinstance(event, run_events.CandidateFound) and event.index >= len(self._pool.candidates)
        )
        waits = self._known is None and time.monotonic() - since < HELD_S  # nothing is written any more if it is known
        if unread and (more or waits):
            self._held = (since, decided)
            return None
        self._held = None
        return decided

    def _decide(self, at: int, event: run_events.Event, proposals: ProposalReader) -> None:
        add = self._log.add
        match event:
            case run_events.CandidateFound():
                add(PoolState(at=at, front=event.front, best=event.best))
                add(MetricCalls(at=at, metric_calls=event.metric_calls))
                for found in proposals.kept(at, event):
                    add(found)
            case run_events.Budget():
                add(MetricCalls(at=at, metric_calls=event.metric_calls))
            case run_events.Rejected():
                for found in proposals.rejected(at, event):
                    add(found)
            case run_events.NoProposal():
                add(Iteration(at=at, iteration=event.iteration, why=event.reason))
                for found in proposals.without_proposal(at, event):
                    add(found)
            case run_events.StepFailed():
                message = line(f"iteration {event.iteration}: {event.step} failed: {event.message}")
                add(RunWarning(at=at, message=message))
                for found in proposals.without_proposal(at, event):
                    add(found)
            case run_events.Steered() if event.best is not None:
                add(PoolState(at=at, front=event.front, best=event.best))
            case run_events.TiesCompared():
                fields = ("best", "rows", "validation_rows", "validation_left", "candidates")
                add(Ties(**{name: getattr(event, name) for name in fields}))
                add(MetricCalls(at=at, metric_calls=event.metric_calls))
            case run_events.Tested():
                add(ScoreOnTestRows(candidate=event.index, score=event.score, rows=event.rows, repeats=event.repeats))
            case _:
                pass
