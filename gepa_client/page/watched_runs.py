"""The runs that pages show: each is read by a thread of its own, as long as a page may come back to it."""

import contextlib
import logging
import threading
import time
from dataclasses import dataclass, field

from gepa_client.errors import JournalError, summary
from gepa_client.journal.store import Store, open_store
from gepa_client.page.event_log import EventLog
from gepa_client.page.moment_events import StoreTrouble
from gepa_client.page.run_details import RunDetails
from gepa_client.page.run_reader import RunReader

_log = logging.getLogger(__name__)

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
