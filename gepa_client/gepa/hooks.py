"""Hooks into GEPA: which of its evaluations need traces, the failures that it swallows, and its cache.

What depends on its version is here: this runs with 0.1.4 and with GEPA's main branch after it. Main states for each
`batch_evaluate` whether it captures traces, and separates training from validation rows in its cache.
`scripts/with_gepa.py` runs the tests that show it.
"""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gepa.core import state as gepa_state
from gepa.core.adapter import EvaluationBatch
from gepa.core.state import GEPAState

from gepa_client.errors import summary


@dataclass(frozen=True)
class Failure:
    """A swallowed failure. `where`: the step (`reflection`, `make_reflective_dataset`, ...); `error`: its exception."""

    where: str
    error: Exception

    def __str__(self) -> str:
        return f"{self.where}: {summary(self.error)}"


class Failures:
    """Failures in order of arrival, until they are taken; may be written from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Failure] = []

    def record(self, where: str, error: Exception) -> None:
        """Add a failure."""
        with self._lock:
            self._waiting.append(Failure(where, error))

    def take(self) -> list[Failure]:
        """Return the failures recorded since the last call; each is returned once."""
        with self._lock:
            taken, self._waiting = self._waiting, []
        return taken


class TracePolicy:
    """A GEPA callback: with it installed, the adapter traces parents' minibatches and nothing else.

    GEPA has children traced as parents are, and 0.1.4 full validation too, and does not read these traces. But only
    candidates already in the pool, whose traces it reads, are announced with a `candidate_idx`.
    """

    def __init__(self) -> None:
        self.reset()

    def on_optimization_start(self, event: Any) -> None:  # noqa: ARG002 - GEPA's signature
        """Expect announcements from here on."""
        self._installed, self._parents_next = True, False

    def on_evaluation_start(self, event: Any) -> None:
        """Note whether the evaluation that follows is of parents."""
        self._parents_next = event["candidate_idx"] is not None

    def on_optimization_end(self, event: Any) -> None:  # noqa: ARG002 - GEPA's signature
        """Forget the run."""
        self.reset()

    def reset(self) -> None:
        """Forget the run; GEPA announces no end of an interrupted one."""
        self._installed, self._parents_next = False, False

    def wanted(self, stated: bool | None, *, whole_batches: bool) -> bool:
        """Return whether the evaluation about to start captures traces; call it once for each.

        `stated`: by GEPA's main branch, for parents and children; GEPA 0.1.4 states nothing. `whole_batches`: the
        program is a GEPA adapter, which may evaluate differently when it traces: it traces what it would in one
        process, where 0.1.4 has it trace everything here.
        """
        parents, self._parents_next = self._parents_next, False
        return stated is not False and (whole_batches or parents or not self._installed)


State = GEPAState[Any, Any]

_SPLITS: list[dict[str, str]] = [{"split": name} for name in sorted(getattr(gepa_state, "CACHE_SPLITS", ()))] or [{}]
"""The keyword arguments of GEPA's cache, one for each of its parts: 0.1.4 has one part and no argument.

The loaders of a run have disjoint row ids, so that a result is right in every part, whichever GEPA reads.
"""


def cached_scores(state: State, candidate: dict[str, str], rows: Iterable[int]) -> dict[int, float]:
    """Return the scores of a candidate that GEPA's cache has, by row id; empty if it keeps none."""
    cache, ids = state.evaluation_cache, list(rows)
    if cache is None:
        return {}
    return {row: found.score for part in _SPLITS for row, found in cache.get_batch(candidate, ids, **part)[0].items()}


def cache_batch(state: State, candidate: dict[str, str], rows: Sequence[int], batch: EvaluationBatch[Any, Any]) -> None:
    """Add the results of a candidate on these rows to GEPA's cache, if it keeps one."""
    if (cache := state.evaluation_cache) is None or not rows:
        return
    objectives = list(batch.objective_scores) if batch.objective_scores else None
    for part in _SPLITS:
        cache.put_batch(candidate, list(rows), batch.outputs, batch.scores, objectives, **part)
