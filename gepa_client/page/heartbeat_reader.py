"""What a run does at this moment, by the last heartbeat of its driver."""

import time
from collections.abc import Sequence
from typing import Any

from gepa_client.analysis.failed_examples import EntryNames
from gepa_client.journal.entries import EVALUATE, SEARCH, Entry, StoredRun
from gepa_client.journal.history import selection_rows
from gepa_client.journal.lease import lease_seconds
from gepa_client.journal.store import Store
from gepa_client.page.decision_reader import DecisionReader
from gepa_client.page.moment_events import Forecast, LongInFlight, Now

OF_A_DRIVER = ("in_flight", "rate", "no_result_s", "timeouts")
"""What a heartbeat states that is nothing any more once the run is not driven."""


class HeartbeatReader:
    """The heartbeats of one run."""

    def __init__(self, store: Store, run_id: str, decisions: DecisionReader) -> None:
        self._store, self._id, self._decisions = store, run_id, decisions
        self._beat: tuple[int, float] | None = None
        """The last heartbeat, and when it was seen first."""
        self._in_flight: dict[str, tuple[str, str]] = {}
        """Row and candidate of listed examples, by the digest of their request."""
        self._named_by = (0, False)
        """The number of proposals whose digests were known when they were named, and whether they were test rows."""

    def event(self, run: StoredRun, *, driven: bool) -> Now:
        """Return the event of this moment."""
        now = time.monotonic()
        if self._beat is None or self._beat[0] != run.claim.beat:
            self._beat = (run.claim.beat, now)
        age = now - self._beat[1] if driven else None
        counters = run.counters
        found: dict[str, Any] = counters.get("now") or {}
        shown = {name: value for name, value in found.items() if driven or name not in OF_A_DRIVER}
        tests = found.get("phase") == "testing"
        return Now.model_validate(
            {
                **{name: value for name, value in shown.items() if name in Now.model_fields},
                "iteration": counters.get("iteration"),
                "metric_calls": counters.get("metric_calls"),
                "longest": self._longest(found.get("longest") or (), tests=tests) if driven else [],
                "spent_usd": counters.get("spent_usd"),
                "active_seconds": counters.get("active_seconds"),
                "beat_age_s": None if age is None else float(int(age)),
                "lost": age is not None and age > lease_seconds(run),
                "forecast": _forecast(run, found) if driven else None,
            }
        )

    def _longest(self, found: Sequence[dict[str, Any]], *, tests: bool) -> list[LongInFlight]:
        """Return examples of a heartbeat with the names of their rows and candidates. `tests`: they are test rows."""
        digests = {each["digest"] for each in found}
        named_by = (len(self._decisions.proposed), tests)
        if not digests <= self._in_flight.keys() or self._named_by != named_by:
            self._named_by = named_by
            rows = {} if tests else selection_rows(self._store, self._id)
            names = EntryNames(self._store.candidates(self._id), rows, self._decisions.proposed)
            self._in_flight = {
                each["digest"]: names.row_and_candidate(Entry(SEARCH, 0, EVALUATE, each["digest"], each["about"], b""))
                for each in found
            }
        longest = []
        for each in found:
            row, candidate = self._in_flight[each["digest"]]
            known = {name: value for name, value in each.items() if name not in ("digest", "about")}
            longest.append(LongInFlight(row=f"test {row}" if tests else row, candidate=candidate, **known))
        return longest


def _forecast(run: StoredRun, now: dict[str, Any]) -> Forecast | None:
    """Return when the budget of metric calls ends at the present rate; None if it is not known."""
    budget, used, rate = run.counters.get("max_metric_calls"), run.counters.get("metric_calls"), now.get("rate")
    if not budget or used is None or not rate or now.get("phase") != "optimizing":
        return None
    left = max(0, budget - used)
    spent = run.counters.get("spent_usd") or 0.0
    priced = spent > 0 and used > 0 and not run.counters.get("unpriced")
    return Forecast(
        limit="max_metric_calls",
        seconds_left=left / rate,
        cost_usd=spent + left * spent / used if priced else None,
    )
