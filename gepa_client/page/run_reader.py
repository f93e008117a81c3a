"""Read the runs that pages show, as they grow: each by a thread of its own, as long as a page may come back to it."""

import contextlib
import logging
import threading
import time
from dataclasses import dataclass, field

from gepa_client.errors import JournalError, NoSuchRun, summary
from gepa_client.journal.entries import StoredRun
from gepa_client.journal.requests import SHOWN
from gepa_client.journal.store import Store, named_store, open_store
from gepa_client.page.event_log import EventLog
from gepa_client.page.notices import NoticeInput
from gepa_client.page.page_events import FailureCounts, Notices, Position, StoreTrouble
from gepa_client.page.run_details import RunDetails
from gepa_client.page.run_state import ending, failure_counts, now_event, run_event, spending_event, steers
from gepa_client.page.search_reader import SearchReader
from gepa_client.page.stuck_examples import stuck_s

_log = logging.getLogger(__name__)

LIVE_POLL_S = 0.1
IDLE_POLL_S = 1.0
NEW_POLL_S = 0.2
"""Of a run that is about to begin, or that is not there yet."""

TOTALS_SHARE = 0.05
"""The part of the time that reading totals anew may take: they grow with the run."""

LEAST_PAUSE_S = 1.0


class RunReader:
    """One run of a store; `poll` adds what is new to the log. Used by one thread.

    `url`: of the store. `ended`: the run is shown as it is recorded, though a driver may continue it.
    """

    def __init__(self, store: Store, url: str, run_id: str, log: EventLog, *, ended: bool = False) -> None:
        self._store, self._named, self._id, self._log = store, named_store(url), run_id, log
        self._is_ended = ended
        self._search = SearchReader(store, run_id, log)
        self._beat: tuple[int, float] | None = None
        """The last heartbeat, and when it was seen first."""
        self._totals_due = 0.0
        self._unsuccessful: object = None
        self._failures: FailureCounts | None = None
        """The last that were read."""
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
        self._search.read_rows()
        self._read_moment(run, driven=driven)
        self._log.published()
        more = False
        if self._search.val:
            self._search.read_decisions()
            self._log.published()
            more = self._search.read_entries()
        for steer in steers(self._store, run, self._search.proposals):
            self._log.add(steer)
        ended = not driven and not more
        if ended and self._ended != (run.status, run.updated):
            self._log.add(Position(end=self._search.end, complete=False))  # what follows takes seconds of a long run
            self._log.published()
            self._read_totals(at_once=True)
            self._ended = (run.status, run.updated)
            if (summary := ending(self._store, run)) is not None:
                self._log.add(summary)
            self._read_moment(run, driven=driven)  # its failures are known now
        else:
            self._read_totals()
        self._log.add(Position(end=self._search.end, complete=ended))
        return more

    def _read_moment(self, run: StoredRun, *, driven: bool) -> None:
        stated = run_event(run, self._search, url=self._store.url, named=self._named, driven=driven)
        moment = time.monotonic()
        if self._beat is None or self._beat[0] != run.claim.beat:
            self._beat = (run.claim.beat, moment)
        now = now_event(run, self._search, moment - self._beat[1] if driven else None)
        situation = NoticeInput(stated, now, self._failures, self._seed_failed(), self._named)
        if stuck_s(now) is not None:
            now.seconds_left = None
        for event in (stated, now, Notices(notices=situation.notices())):
            self._log.add(event)

    def _seed_failed(self) -> bool:
        """Return whether the program failed on every example, or with the seed on every validation row."""
        failures = self._failures
        if failures is None:
            return False
        seed = next(iter(self._search.indices), "")[:SHOWN]
        return failures.failed >= failures.evaluated or len({*failures.cells.get(seed, ())}) == len(self._search.val)

    def _read_totals(self, *, at_once: bool = False) -> None:
        """Read the totals if they are due, after a pause that grows with the time that reading them took.

        `at_once`: in any case; what is shown of a run that has ended is whole.
        """
        began = time.monotonic()
        if not at_once and began < self._totals_due:
            return
        spending = self._store.spending(self._id)
        self._log.add(spending_event(spending))
        unsuccessful = [(spent.kind, spent.outcome, spent.attempts) for spent in spending if spent.outcome != "ok"]
        if unsuccessful and (at_once or unsuccessful != self._unsuccessful):
            self._unsuccessful = unsuccessful
            if (found := failure_counts(self._store, self._id, self._search)) is not None:
                self._failures = found
                self._log.add(found)
        ended = time.monotonic()
        self._totals_due = ended + max(LEAST_PAUSE_S, (ended - began) / TOTALS_SHARE)
        self._log.published()


MOST_RUNS = 8
"""Runs that are read although no page follows them, at most: their events are in memory."""

FAILED_PAUSE_S = 1.0
STOP_WAIT_S = 5.0


@dataclass
class WatchedRun:
    """A run that is being read, by a thread of its own with a connection of its own."""

    url: str
    run_id: str
    log: EventLog = field(default_factory=EventLog)
    details: RunDetails | None = field(default=None, init=False)
    """For the thread that reads details; None before the first."""

    def __post_init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, name=f"reader of {self.run_id}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Have the thread end after what it reads now."""
        self._over.set()

    def join(self, seconds: float) -> None:
        """Wait for the end of the thread; one whose store does not answer ends later."""
        self._thread.join(seconds)

    def _read(self) -> None:
        pause = 0.0
        while not self._over.wait(pause):
            pause = FAILED_PAUSE_S
            try:
                with contextlib.closing(open_store(self.url)) as store:
                    self._follow(store)
            except JournalError as error:
                self._add(StoreTrouble(problem=str(error), gone=False))
            except Exception as error:  # noqa: BLE001 - the page must state that it shows nothing new
                _log.exception("run %s cannot be shown further", self.run_id)
                self._add(StoreTrouble(problem=f"the page cannot read this run: {summary(error)}", gone=False))
                return

    def _follow(self, store: Store) -> None:
        reader = RunReader(store, self.url, self.run_id, self.log)
        while not self._over.wait(reader.poll()):
            pass

    def _add(self, event: StoreTrouble) -> None:
        self.log.add(event)
        self.log.published()


@dataclass
class WatchedRuns:
    """The runs that are read, the one asked for last at the end. `url`: of the store."""

    url: str
    _runs: dict[str, WatchedRun] = field(default_factory=dict, init=False)

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._runs

    def get(self, run_id: str) -> WatchedRun:
        """Return a run, which is read from now on; stop reading others that no page has followed for longest."""
        found = self._runs.pop(run_id, None) or WatchedRun(self.url, run_id)
        idle = [each for each, run in self._runs.items() if not run.log.is_followed]
        for each in idle[: max(0, len(idle) + 1 - MOST_RUNS)]:
            self._runs.pop(each).stop()
        self._runs[run_id] = found
        return found

    def close(self) -> None:
        """Stop reading all runs; wait for their threads, but no longer than `STOP_WAIT_S`."""
        for run in self._runs.values():
            run.stop()
        until = time.monotonic() + STOP_WAIT_S
        for run in self._runs.values():
            run.join(max(0.0, until - time.monotonic()))
