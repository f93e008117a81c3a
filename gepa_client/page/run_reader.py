"""Read a run's store as it grows, and turn what is new into events of the page."""

from gepa_client.errors import JournalError, NoSuchRun
from gepa_client.journal.entries import StoredRun
from gepa_client.journal.requests import SHOWN
from gepa_client.journal.store import Store, named_store
from gepa_client.page.decision_reader import DecisionReader
from gepa_client.page.ending_reader import ending
from gepa_client.page.entry_reader import EntryReader
from gepa_client.page.event_log import EventLog
from gepa_client.page.initial_rows import InitialRows
from gepa_client.page.moment_events import FailureCounts, Notices, Position, StoreTrouble
from gepa_client.page.notices import NoticeInput
from gepa_client.page.record_reader import HeartbeatReader, run_event, steers
from gepa_client.page.totals_reader import TotalsReader

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
