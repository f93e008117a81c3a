"""The progress of a run: events at regular intervals, and the counters that its store shows."""

import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from gepa_client.gepa.adapter import RemoteAdapter
from gepa_client.journal.requests import SpendingTotals
from gepa_client.journal.run_events import Emit, Progress
from gepa_client.run.gateway_record import GatewayRecord

REPORT_EVERY_S = 0.1


class ProgressReporter:
    """Emits a `progress` event a few times a second while the figures change; none after its `with` block.

    Regular readings are needed: at the moment an example ends, its slot is empty. `gateway`: its totals are emitted
    too.
    """

    def __init__(self, adapter: RemoteAdapter, emit: Emit, gateway: GatewayRecord) -> None:
        self._adapter = adapter
        self._gateway = gateway
        self._emit = emit
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _beat(self) -> None:
        last = Progress(evaluated=0, in_flight=0)
        over = False
        while not over:
            over = self._over.wait(REPORT_EVERY_S)  # the last reading comes after everything has ended
            endpoints = self._adapter.fleet.endpoints
            reading = Progress(
                evaluated=self._adapter.tally.examples,
                in_flight=self._adapter.in_flight,
                up=sum(not endpoint.resting for endpoint in endpoints),
                endpoints=len(endpoints),
                slots=self._adapter.fleet.slots,
                waiting=self._adapter.fleet.waiting,
                spent_usd=round(self._adapter.journal.spending.cost_usd, 6),
            )
            if reading != last:
                last = reading
                self._emit(reading)
            if (news := self._gateway.news(at_once=over)) is not None:
                self._emit(news)


class RunCounters:
    """Written by the run, read by its heartbeat; safe to use from any thread.

    `before`: the counters in the store. Active seconds continue from there, on a monotonic clock.
    """

    def __init__(self, before: Mapping[str, Any], spend: SpendingTotals) -> None:
        self._lock = threading.Lock()
        self._figures = dict(before)
        self._best: dict[str, Any] | None = None
        self._spend = spend
        self._active_before = float(before.get("active_seconds") or 0.0)
        self._began = time.monotonic()

    @property
    def active_seconds(self) -> float:
        """Seconds that processes have driven this run, pauses excluded."""
        return self._active_before + time.monotonic() - self._began

    def set(self, **figures: Any) -> None:
        """Set counters by name: iteration, metric_calls, candidates, ..."""
        with self._lock:
            self._figures.update(figures)

    def found_best(self, index: int, score: float, texts: Mapping[str, str]) -> None:
        """Note a candidate that beats all before it."""
        with self._lock:
            self._best = {"index": index, "score": score, "texts": dict(texts)}

    def changes(self) -> dict[str, Any]:
        """Return the counters as fields of `StoredRun`."""
        with self._lock:
            figures = {
                **self._figures,
                "active_seconds": round(self.active_seconds, 3),
                "spent_usd": self._spend.cost_usd,
                "unpriced": self._spend.unpriced,
            }
            return {"counters": figures} | ({"best": self._best} if self._best is not None else {})
