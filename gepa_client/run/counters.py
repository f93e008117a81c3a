"""The figures of a run that its store shows while it goes on."""

import threading
import time
from collections.abc import Mapping
from typing import Any

from gepa_client.journal.usage import Spend


class Counters:
    """Written by the run, read by its heartbeat; may be used from any thread.

    `before`: what the store had. Active seconds go on from there, on a clock that knows no jumps.
    """

    def __init__(self, before: Mapping[str, Any], spend: Spend) -> None:
        self._lock = threading.Lock()
        self._figures = dict(before)
        self._best: dict[str, Any] | None = None
        self._spend = spend
        self._active_before = float(before.get("active_seconds") or 0.0)
        self._began = time.monotonic()

    @property
    def active_seconds(self) -> float:
        """Seconds that processes have driven this run, pauses left out."""
        return self._active_before + time.monotonic() - self._began

    def set(self, **figures: Any) -> None:
        """Note figures by their names: iteration, metric_calls, candidates, ..."""
        with self._lock:
            self._figures.update(figures)

    def found_best(self, index: int, score: float, texts: Mapping[str, str]) -> None:
        """A candidate beats all before it."""
        with self._lock:
            self._best = {"index": index, "score": score, "texts": dict(texts)}

    def changes(self) -> dict[str, Any]:
        """As fields of `StoredRun`."""
        with self._lock:
            figures = {
                **self._figures,
                "active_seconds": round(self.active_seconds, 3),
                "spent_usd": self._spend.cost_usd,
                "unpriced": self._spend.unpriced,
            }
            return {"counters": figures} | ({"best": self._best} if self._best is not None else {})
