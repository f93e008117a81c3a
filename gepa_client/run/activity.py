"""What a run is doing at this moment, by its events and its fleet, for the heartbeat that other processes read."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from evolverpc_common.display_text import line
from gepa_client.fleet.endpoint import Endpoint
from gepa_client.journal.entries import now
from gepa_client.journal.run_events import Emit, Event, FleetChanged, Phase, Progress, Reflecting, Warned

RATE_WINDOW_S = 30.0
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
        self._over = False

    def observed(self, emit: Emit) -> Emit:
        """Return `emit` with every event noted before it is passed on."""

        def emit_noted(event: Event) -> None:
            self._note(event)
            emit(event)

        return emit_noted

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
            found = {**self._now, "rate": self._rate(), "endpoints": listed}
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
                    while self._pace[-1][0] - self._pace[0][0] > RATE_WINDOW_S:
                        self._pace.popleft()
                case Reflecting():
                    names = [] if event.ended else [*self._now.get("reflecting", []), *event.components]
                    since = None if event.ended else self._now.get("reflecting_since") or now()
                    self._now |= {"reflecting": names, "reflecting_since": since}
                case FleetChanged():
                    self._note_fleet(event)
                case Warned() if len(self._warnings) < WARNINGS_KEPT:
                    self._warnings[line(event.message, LONGEST_DETAIL)] = None

    def _note_fleet(self, event: FleetChanged) -> None:
        detail = line(event.detail, LONGEST_DETAIL)
        if event.kind in ("waiting", "back", "joined"):
            self._now["waiting_for"] = detail if event.kind == "waiting" else None
        if event.url is not None and event.kind == "refused":
            self._refused[event.url] = detail
        elif event.url is not None:
            self._refused.pop(event.url, None)

    def _rate(self) -> float | None:
        """Return examples per second over the last half minute; None before two readings."""
        if len(self._pace) < 2:
            return None
        (first_s, first), (last_s, last) = self._pace[0], self._pace[-1]
        seconds = max(last_s, time.monotonic()) - first_s
        return round((last - first) / seconds, 3) if seconds > 0 else None


def _endpoint(endpoint: Endpoint) -> dict[str, Any]:
    state = "left" if endpoint.left else "resting" if endpoint.resting else "up" if endpoint.up else "connecting"
    return {
        "name": endpoint.url,
        "state": state,
        "slots": endpoint.slots,
        "in_flight": endpoint.in_flight,
        "detail": line(endpoint.last_warning, LONGEST_DETAIL) or None,
    }
