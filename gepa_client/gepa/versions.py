"""What depends on GEPA's version: this runs with 0.1.4 and with GEPA's main branch after it.

Main states for each `batch_evaluate` whether it captures traces, and separates training from validation rows in its
cache. `scripts/with_gepa.py` runs the tests that show it.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from gepa.core import state as gepa_state
from gepa.core.adapter import EvaluationBatch
from gepa.core.state import GEPAState

State = GEPAState[Any, Any]

_SPLITS: list[dict[str, str]] = [{"split": name} for name in sorted(getattr(gepa_state, "CACHE_SPLITS", ()))] or [{}]
"""The keyword arguments of GEPA's cache, one for each of its parts: 0.1.4 has one part and no argument.

The loaders of a run have disjoint row ids, so that a result is right in every part, whichever GEPA reads.
"""


def captures_traces(stated: bool | None, *, parents: bool, whole_batches: bool) -> bool:
    """Return whether a `batch_evaluate` captures traces.

    `stated`: by GEPA's main branch, for parents and children; GEPA 0.1.4 states nothing. `parents`: whether these are
    parents, whose traces alone GEPA reads. `whole_batches`: the program is a GEPA adapter, which may evaluate
    differently when it traces: it traces what it would in one process, where 0.1.4 has it trace everything here.
    """
    if whole_batches:
        return stated is not False
    return parents and stated is not False


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
