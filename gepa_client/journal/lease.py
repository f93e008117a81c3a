"""The lease of a run: claimed if no living process drives it, kept by heartbeats, without comparing two clocks."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from gepa_client.errors import JournalError, RunBusy, StoreUnavailable
from gepa_client.journal.entries import StoredRun
from gepa_client.journal.store import Store

BEATS_PER_LEASE = 4
LONGEST_PAUSE_S = 1.0
"""Seconds between two beats at most: other processes show the counters that a beat writes."""

LEASE_S = 10.0
"""The lease of a run whose settings do not define it."""

LOOK_S = 0.25
STOP_WAIT_S = 1.0


def lease_seconds(run: StoredRun) -> float:
    """Return the seconds without a heartbeat after which the driver of a run counts as gone."""
    return float(run.config.get("lease_s") or LEASE_S)


def take(
    store: Store,
    run_id: str,
    *,
    owner: str,
    driver: str,
    lease_s: float,
    on_wait: Callable[[str, float], None],
) -> None:
    """Make `owner` the run's driver: at once if it has none, else when its claim has not changed for `lease_s`.

    Time is measured by this process alone, on a monotonic clock. `on_wait` gets the driver that may be dead,
    and for how many seconds it is watched. Raises `RunBusy` naming a driver that lives, and what the store raises.
    """
    seen = store.run(run_id)
    if seen.claim.owner is not None:
        on_wait(seen.driver or "another process", lease_s)
        seen = _watched(store, seen, lease_s)
    if not store.claim(run_id, seen.claim, owner, driver):
        raise _busy(store.run(run_id))


def _watched(store: Store, seen: StoredRun, lease_s: float) -> StoredRun:
    """Return the run once its claim is free, or has not changed for the lease."""
    until = time.monotonic() + lease_s
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, LOOK_S))
        run = store.run(seen.id)
        if run.claim.owner is None:
            return run
        if run.claim != seen.claim:
            raise _busy(run)
    return seen


def _busy(run: StoredRun) -> RunBusy:
    return RunBusy(f"run {run.id} is driven by {run.driver or 'another process'}; end that one first, or wait for it")


@dataclass(eq=False)
class LeaseHeartbeat:
    """Heartbeats from a thread of its own, while the `with` block lasts.

    Every beat writes what `changes()` returns. `on_stop` gets each action of a user that stops the run. `on_lost` gets
    why the run must not be driven further: `ClaimLost`, or `StoreUnavailable` if no beat succeeded for `lease_s`, after
    which another process may claim it. Both are called from threads of this class.
    """

    store: Store
    run_id: str
    owner: str
    lease_s: float
    changes: Callable[[], Mapping[str, Any]]
    on_stop: Callable[[str], None]
    on_lost: Callable[[JournalError], None]

    def __post_init__(self) -> None:
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._beaten = time.monotonic()
        self._trouble: JournalError | None = None
        # A beat may hang in the store for longer than the lease; so another thread holds the watch.
        self._threads = [
            threading.Thread(target=work, name=f"{work.__name__.strip('_')} of {self.run_id}", daemon=True)
            for work in (self._beat, self._watch)
        ]

    def __enter__(self) -> Self:
        self._beaten = time.monotonic()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(STOP_WAIT_S)

    def _beat(self) -> None:
        last: str | None = None
        pause = min(self.lease_s / BEATS_PER_LEASE, LONGEST_PAUSE_S)
        while not self._ended.is_set():
            begun = time.monotonic()
            try:
                asked = self.store.beat(self.run_id, self.owner, self.changes())
            except StoreUnavailable as error:
                self._trouble = error
            except JournalError as error:
                self._lost(error)
                return
            else:
                # Others count from the change they see, which is not before this beat began.
                self._beaten = begun
                if asked is not None and asked != last and not self._ended.is_set():
                    self.on_stop(asked)
                last = asked
            self._ended.wait(max(0.0, begun + pause - time.monotonic()))

    def _watch(self) -> None:
        while (left := self._beaten + self.lease_s - time.monotonic()) > 0:
            if self._ended.wait(left):
                return
        why = str(self._trouble) if self._trouble else "the store does not answer"
        self._lost(StoreUnavailable(f"no sign of life could be written for {self.lease_s:g} s: {why}"))

    def _lost(self, error: JournalError) -> None:
        with self._lock:
            if self._ended.is_set():
                return
            self._ended.set()
        self.on_lost(error)
