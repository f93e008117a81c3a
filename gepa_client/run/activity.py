"""What a run is doing at this moment, by its events and its fleet, for the heartbeat that other processes read."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from evolverpc_common.display_text import line
from gepa_client.fleet.endpoint import Endpoint
from gepa_client.gepa.batch_evaluator import ExampleDone
from gepa_client.journal.entries import now
from gepa_client.journal.run_events import (
    Emit,
    Event,
    FleetChanged,
    Phase,
    Progress,
    ProposalBegun,
    ProposalMade,
    Warned,
)

RATE_WINDOW_S = 30.0
LONG_S = 10.0
"""Seconds in flight from which on an example is listed."""

LISTED_IN_FLIGHT = 5
ENDPOINTS_LISTED = 64
WARNINGS_KEPT = 50
LONGEST_DETAIL = 500
"""Characters."""


class Activity:
    """Written by the events of a run, read by its heartbeat; safe to use from any thread.

    `endpoints`: returns those of the fleet, None before there is one.
    """

    def __init__(self) -> None:
        self.endpoints: Callable[[], Sequence[Endpoint]] | None = None
        self._lock = threading.Lock()
        self._now: dict[str, Any] = {}
        self._pace: deque[tuple[float, int]] = deque()
        self._warnings: dict[str, None] = {}
        self._refused: dict[str, str] = {}
        self._finished: tuple[str, float] | None = None
        """When an example last finished other than by a time-out: ISO 8601, and on the monotonic clock."""
        self._in_time, self._seconds = 0, 0.0
        """Examples that finished other than by a time-out, and the seconds that they took in all."""
        self._timeouts = 0
        """Time-outs since then."""
        self._over = False

    def observed(self, emit: Emit) -> Emit:
        """Return `emit` with every event noted before it is passed on."""

        def emit_noted(event: Event) -> None:
            self._note(event)
            emit(event)

        return emit_noted

    def example_done(self, example: ExampleDone) -> None:
        """Note the result of an example."""
        with self._lock:
            if example.status == "timeout":
                self._timeouts += 1
                return
            self._finished, self._timeouts = (now(), time.monotonic()), 0
            self._in_time += 1
            self._seconds += example.seconds

    def end(self) -> None:
        """Note that the run has ended: nothing is in flight any more."""
        with self._lock:
            self._over = True

    def changes(self) -> dict[str, Any]:
        """Return counters for the store: `now` until the run has ended, and `warnings`."""
        endpoints = self.endpoints() if self.endpoints is not None else ()
        with self._lock:
            if self._over:
                return {"warnings": list(self._warnings)}
            shown = [_endpoint(each) for each in endpoints[:ENDPOINTS_LISTED]]
            known = {each["name"] for each in shown}
            refused = [{"name": url, "state": "refused", "detail": why} for url, why in self._refused.items()]
            listed = [*shown, *(each for each in refused if each["name"] not in known)][:ENDPOINTS_LISTED]
            found = {**self._now, "rate": self._rate(), "endpoints": listed, "longest": _longest(endpoints)}
            found["timeouts"] = self._timeouts
            if self._in_time:
                found["usual_s"] = self._seconds / self._in_time
            if self._finished is not None:
                at, since = self._finished
                found |= {"last_result": at, "no_result_s": round(time.monotonic() - since, 1)}
            return {"now": found, "warnings": list(self._warnings)}

    def _note(self, event: Event) -> None:
        with self._lock:
            match event:
                case Phase():
                    self._now["phase"] = event.phase
                    self._pace.clear()
                case Progress():
                    self._now |= {name: getattr(event, name) for name in ("evaluated", "in_flight", "waiting", "slots")}
                    self._pace.append((time.monotonic(), event.evaluated))
                case ProposalBegun():
                    names = [*self._now.get("reflecting", []), *event.components]
                    self._now |= {"reflecting": names, "reflecting_since": self._now.get("reflecting_since") or now()}
                case ProposalMade():
                    self._now |= {"reflecting": [], "reflecting_since": None}
                case FleetChanged():
                    self._note_fleet(event)
                case Warned() if len(self._warnings) < WARNINGS_KEPT:
                    self._warnings[line(event.message, LONGEST_DETAIL)] = None

    def _note_fleet(self, event: FleetChanged) -> None:
        detail = line(event.detail, LONGEST_DETAIL)
        if event.kind in ("waiting", "back", "joined"):
            waits = event.kind == "waiting"
            since = self._now.get("waiting_since") or now()
            self._now |= {"waiting_for": detail if waits else None, "waiting_since": since if waits else None}
        if event.url is not None and event.kind == "refused":
            self._refused[event.url] = detail
        elif event.url is not None:
            self._refused.pop(event.url, None)

    def _rate(self) -> float | None:
        """Return examples per second over the last half minute; None before two readings."""
        if len(self._pace) < 2:
            return None
        at = time.monotonic()
        while len(self._pace) > 2 and self._pace[1][0] <= at - RATE_WINDOW_S:
            self._pace.popleft()
        (first_s, first), (last_s, last) = self._pace[0], self._pace[-1]
        if last_s <= at - RATE_WINDOW_S:
            return 0.0
        return round((last - first) / (at - first_s), 3) if at > first_s else None


def _longest(endpoints: Sequence[Endpoint]) -> list[dict[str, Any]]:
    """Return the examples that have been in flight longest."""
    at = time.monotonic()
    sent = [(each, endpoint) for endpoint in endpoints for each in tuple(endpoint.sent) if at - each.since >= LONG_S]
    return [
        {
            "digest": each.request[0],
            "about": each.request[1],
            "seconds": round(at - each.since),
            "limit_s": each.limit_s,
            "endpoint": endpoint.url,
        }
        for each, endpoint in sorted(sent, key=lambda found: found[0].since)[:LISTED_IN_FLIGHT]
    ]


def _endpoint(endpoint: Endpoint) -> dict[str, Any]:
    state = "left" if endpoint.left else "resting" if endpoint.resting else "up" if endpoint.up else "connecting"
    return {
        "name": endpoint.url,
        "state": state,
        "slots": endpoint.slots,
        "in_flight": endpoint.in_flight,
        "detail": line(endpoint.last_warning, LONGEST_DETAIL) or None,
    }
