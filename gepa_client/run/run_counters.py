"""What other processes see of a run: the counters in its store, folded from its events, and what it does now."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from evolverpc_common.display_text import one_line
from gepa_client.fleet.endpoint import Endpoint
from gepa_client.gepa.batch_evaluator import ExampleDone
from gepa_client.journal.entries import now
from gepa_client.journal.requests import SpendingTotals
from gepa_client.journal.run_events import Emit, Event
from gepa_client.run.run_view import RunView

LONG_S = 10.0
"""Seconds in flight from which on an example is listed."""

LISTED_IN_FLIGHT = 5
ENDPOINTS_LISTED = 64
WARNINGS_KEPT = 50
LONGEST_DETAIL = 500
"""Characters."""


class RunCounters:
    """Written by the events of a run, read by its heartbeat; safe to use from any thread.

    `before`: the counters in the store, which are newer than those of the events until the replay is over (`live`).
    Active seconds continue from there, on a monotonic clock. `endpoints`: returns those of the fleet, None before there
    is one.
    """

    def __init__(self, before: Mapping[str, Any], spend: SpendingTotals) -> None:
        self.endpoints: Callable[[], Sequence[Endpoint]] | None = None
        self._lock = threading.Lock()
        self._view = RunView()
        self._figures = {name: value for name, value in before.items() if name != "now"}
        self._spend = spend
        self._active_before = float(before.get("active_seconds") or 0.0)
        self._began = time.monotonic()
        self._live = self._over = False
        self._since: dict[str, str] = {}
        """When new texts, or servers, were first waited for, if they are: ISO 8601."""
        self._finished: tuple[str, float] | None = None
        """When an example last finished other than by a time-out: ISO 8601, and on the monotonic clock."""
        self._in_time, self._seconds = 0, 0.0
        """Examples that finished other than by a time-out, and the seconds that they took in all."""
        self._timeouts = 0
        """Time-outs since then."""

    @property
    def active_seconds(self) -> float:
        """Seconds that processes have driven this run, pauses excluded."""
        return self._active_before + time.monotonic() - self._began

    def observed(self, emit: Emit) -> Emit:
        """Return `emit` with every event noted before it is passed on."""

        def emit_noted(event: Event) -> None:
            with self._lock:
                self._view.apply(event.model_copy(update={"seconds": time.monotonic() - self._began}))
                waits = {"reflecting": bool(self._view.reflecting), "waiting": self._view.waiting is not None}
                self._since = {name: self._since.get(name) or now() for name, waited in waits.items() if waited}
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

    def set(self, **figures: Any) -> None:
        """Set counters that no event states."""
        with self._lock:
            self._figures.update(figures)

    def live(self) -> None:
        """Note that the events state more than the store from now on."""
        with self._lock:
            self._live = True

    def end(self) -> None:
        """Note that the run has ended: nothing is in flight any more."""
        with self._lock:
            self._over = True

    def changes(self) -> dict[str, Any]:
        """Return the counters as fields of `StoredRun`, among them `now` until the run has ended."""
        endpoints = self.endpoints() if self.endpoints is not None else ()
        with self._lock:
            if self._live:
                self._figures |= self._view.figures()
            warnings = dict.fromkeys(one_line(text, LONGEST_DETAIL) for text in self._view.warnings)
            figures = {
                **self._figures,
                "active_seconds": round(self.active_seconds, 3),
                "spent_usd": self._spend.cost_usd,
                "unpriced": self._spend.unpriced,
                "unreported": self._spend.unreported,
                "warnings": list(warnings)[:WARNINGS_KEPT],
            }
            if not self._over:
                figures["now"] = self._now(endpoints)
            best, scores = self._view.best, self._view.searched()
            if not self._live or best is None or scores is None:
                return {"counters": figures}
            return {"counters": figures, "best": {"index": best.index, "score": scores[1], "texts": best.texts}}

    def _now(self, endpoints: Sequence[Endpoint]) -> dict[str, Any]:
        view = self._view
        view.seconds = time.monotonic() - self._began
        rate = view.rate()
        shown = [_endpoint(each) for each in endpoints[:ENDPOINTS_LISTED]]
        known = {each["name"] for each in shown}
        refused = [
            {"name": url, "state": "refused", "detail": one_line(detail, LONGEST_DETAIL)}
            for url, detail in view.refused_endpoints.items()
            if url not in known
        ]
        found = {
            "phase": view.phase,
            **{name: getattr(view, name) for name in ("evaluated", "in_flight", "slots")},
            "waiting": view.waiting_calls,
            "waiting_for": one_line(view.waiting.detail, LONGEST_DETAIL) if view.waiting is not None else None,
            "waiting_since": self._since.get("waiting"),
            "reflecting": [name for proposal in view.reflecting for name in proposal.components],
            "reflecting_since": self._since.get("reflecting"),
            "rate": None if rate is None else round(rate, 3),
            "seconds_left": view.seconds_left(),
            "cost_at_end_usd": self._cost_at_end(),
            "endpoints": [*shown, *refused][:ENDPOINTS_LISTED],
            "longest": _longest(endpoints),
            "timeouts": self._timeouts,
        }
        if self._in_time:
            found["usual_s"] = self._seconds / self._in_time
        if self._finished is not None:
            at, since = self._finished
            found |= {"last_result": at, "no_result_s": round(time.monotonic() - since, 1)}
        return found

    def _cost_at_end(self) -> float | None:
        """Return what the run will have cost at the end of its budget; None if some costs are not known."""
        budget, used, spent = self._view.budget, self._view.metric_calls, self._spend.cost_usd
        return spent * max(budget, used) / used if budget and used and spent and not self._spend.unpriced else None


def _longest(endpoints: Sequence[Endpoint]) -> list[dict[str, Any]]:
    """Return the examples that have been in flight longest."""
    at = time.monotonic()
    sent = [(each, endpoint) for endpoint in endpoints for each in tuple(endpoint.sent) if at - each.since >= LONG_S]
    return [
        {
            "candidate": each.request[0],
            "row": each.request[1],
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
        "detail": one_line(endpoint.last_warning, LONGEST_DETAIL) or None,
    }
