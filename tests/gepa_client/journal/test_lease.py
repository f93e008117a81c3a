"""One driver a run: a live driver keeps it, a dead one loses it, and the wall clock does not matter."""

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import pytest

from gepa_client.errors import ClaimLost, JournalError, RunBusy, StoreUnavailable
from gepa_client.journal.entries import SteeringRequest, now
from gepa_client.journal.lease import LeaseHeartbeat, take
from gepa_client.journal.store import Store
from tests.gepa_client.journal.sample_runs import DRIVER, OWNER, RUN, driven

LEASE_S = 0.4
LIVING_S = 2.0  # a beat of a living driver may be this late
LEASE_OF_SLOW_S = 2.0
WAIT_S = 30.0


def taken(store: Store, owner: str = "another", lease_s: float = LEASE_S) -> list[str]:
    """Take the run; returns whom it waited for."""
    waited: list[str] = []
    take(store, RUN.id, owner=owner, driver="pid 2", lease_s=lease_s, on_wait=lambda driver, _: waited.append(driver))
    return waited


def never(*arguments: object) -> None:
    raise AssertionError(arguments)


def test_a_driver_without_signs_of_life_is_waited_for_and_replaced(store: Store) -> None:
    driven(store)
    begun = time.monotonic()
    assert taken(store) == [DRIVER]
    assert time.monotonic() - begun >= LEASE_S
    assert store.run(RUN.id).claim.owner == "another"
    with pytest.raises(ClaimLost):
        store.beat(RUN.id, OWNER, {})


def test_a_run_that_its_driver_releases_is_taken_before_the_lease_ends(store: Store) -> None:
    driven(store)
    begun = time.monotonic()
    take(
        store, RUN.id, owner="another", driver="pid 2", lease_s=WAIT_S, on_wait=lambda *_: store.release(RUN.id, OWNER)
    )
    assert time.monotonic() - begun < WAIT_S / 2
    assert store.run(RUN.id).claim.owner == "another"


def test_a_living_driver_keeps_its_run_and_is_named(store: Store, another: Callable[[], Store]) -> None:
    driven(store)
    with (
        LeaseHeartbeat(store, RUN.id, OWNER, LIVING_S, dict, never, never),
        pytest.raises(RunBusy, match=f"{RUN.id} is driven by {DRIVER}"),
    ):
        taken(another(), lease_s=WAIT_S)
    assert store.run(RUN.id).claim.owner == OWNER


def test_a_driver_receives_a_stop_that_another_asked_for_and_its_loss(
    store: Store, another: Callable[[], Store]
) -> None:
    driven(store)
    received, other = SimpleQueue[object](), another()
    with LeaseHeartbeat(store, RUN.id, OWNER, LIVING_S, dict, received.put, received.put):
        other.add_request(RUN.id, SteeringRequest("one", {"kind": "cancel"}, "ada@desk", now()))
        assert received.get(timeout=WAIT_S) == "cancel"
        while not other.claim(RUN.id, other.run(RUN.id).claim, "another", "pid 2"):
            pass  # its driver wrote a heartbeat in between
        assert isinstance(received.get(timeout=WAIT_S), ClaimLost)


class Silent:
    """A store that cannot be reached, or does not answer while `hangs` is not set."""

    def __init__(self, hangs: threading.Event | None = None) -> None:
        self.beats = 0
        self._hangs = hangs

    def beat(self, *_: object) -> str | None:
        self.beats += 1
        if self._hangs is not None:
            self._hangs.wait(WAIT_S)
        raise StoreUnavailable("away")


class SlowThenAway(Silent):
    """Its first beat is answered after 3/4 of the lease; `answered`: when. It is away after it."""

    answered = 0.0

    def beat(self, *given: object) -> str | None:
        if self.beats:
            return super().beat(*given)
        self.beats += 1
        threading.Event().wait(0.75 * LEASE_OF_SLOW_S)
        self.answered = time.monotonic()
        return None


def lost(store: Any, lease_s: float = LEASE_S) -> tuple[JournalError, float]:
    """Return the error with which a driver loses its run, and the seconds until then."""
    received: list[JournalError] = []
    loss = threading.Event()

    def on_lost(error: JournalError) -> None:
        received.append(error)
        loss.set()

    begun = time.monotonic()
    with LeaseHeartbeat(store, RUN.id, OWNER, lease_s, dict, never, on_lost):
        assert loss.wait(WAIT_S)
        took = time.monotonic() - begun
    assert len(received) == 1
    return received[0], took


def test_a_driver_whose_store_hangs_loses_the_run_in_time_too() -> None:
    hangs = threading.Event()
    error, took = lost(Silent(hangs))
    hangs.set()
    assert isinstance(error, StoreUnavailable)
    assert LEASE_S <= took < WAIT_S / 2


def test_a_lease_counts_from_the_beginning_of_a_beat_as_others_may_see_the_change_at_once() -> None:
    store = SlowThenAway()
    error, took = lost(store, LEASE_OF_SLOW_S)
    assert time.monotonic() < store.answered + LEASE_OF_SLOW_S
    assert took >= LEASE_OF_SLOW_S
    assert isinstance(error, StoreUnavailable)
    assert "away" in str(error)
    assert store.beats >= 2, "it tried again"
