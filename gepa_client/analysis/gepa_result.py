"""GEPA's own result of a run, read from the store that keeps it."""

from collections.abc import Iterable
from typing import Any

from gepa.core.result import GEPAResult

from evolverpc_common.display_text import command
from gepa_client.analysis import pareto_fronts
from gepa_client.errors import JournalError
from gepa_client.journal.entries import CandidateRecord, StoredRun
from gepa_client.journal.history import results, validation_rows
from gepa_client.journal.store import Store, default_store, find_run, named_store, open_store


def load_result(run: str, store: str | None = None) -> GEPAResult[Any, int]:
    """Return what `gepa.optimize` returned, or would return if it stopped now, for a run in a store.

    `run`: an id, the beginning of one, a name, or `last`. `store`: a file or `mongodb://...`; without it GEPA_STORE,
    else `runs/evolverpc.db`. The ids of rows are GEPA's integers, training rows first.

    `best_outputs_valset` holds the recorded outputs of the candidates best at each row, None if the run did not keep
    them. `run_dir` is None.

    Raises:
        NoSuchRun: the store has no such run. JournalError: it has no candidate yet, or the store cannot be read.
    """
    opened = open_store(store or default_store())
    try:
        return result_of(opened, find_run(opened, run))
    finally:
        opened.close()


def result_of(store: Store, run: StoredRun) -> GEPAResult[Any, int]:
    """Return the result of a run in an open store; see `load_result`."""
    candidates = store.candidates(run.id)
    if not candidates:
        raise JournalError(
            f"run {run.id} is {run.status} and has no candidate yet: its seed has not been scored. "
            f"`{command('resume', run.id, store=named_store(store.url))}` resumes it"
        )
    rows = {int(row): best for row, best in pareto_fronts.by_row(candidates).items()}
    objectives = pareto_fronts.by_objective(candidates)
    return GEPAResult(
        candidates=[dict(kept.texts) for kept in candidates],
        parents=[list(kept.parents) or [None] for kept in candidates],
        val_aggregate_scores=[kept.score for kept in candidates],
        val_subscores=[{int(row): score for row, score in kept.scores.items()} for kept in candidates],
        per_val_instance_best_candidates=rows,
        discovery_eval_counts=[kept.metric_calls for kept in candidates],
        val_aggregate_subscores=[dict(kept.objective_scores or {}) for kept in candidates] if objectives else None,
        per_objective_best_candidates=objectives or None,
        objective_pareto_front=_highest(candidates) or None,
        best_outputs_valset=_best_outputs(store, run, candidates, rows),
        # GEPA begins to count when the seed has been scored, with its rows
        total_metric_calls=run.counters.get("metric_calls", len(candidates[0].scores)),
        num_full_val_evals=len(candidates),
        seed=run.config.get("seed"),
    )


def _highest(candidates: list[CandidateRecord]) -> dict[str, float]:
    highest: dict[str, float] = {}
    for kept in candidates:
        for objective, score in (kept.objective_scores or {}).items():
            highest[objective] = max(score, highest.get(objective, score))
    return highest


def _best_outputs(
    store: Store, run: StoredRun, candidates: list[CandidateRecord], rows: Iterable[int]
) -> dict[int, list[tuple[int, Any]]] | None:
    """By row the outputs of the candidates best there; a later one that gave no output changes nothing, as in GEPA."""
    if not run.config.get("track_best_outputs", True):
        return None
    recorded = results(store, run.id, candidates, validation_rows(store, run.id))
    found: dict[int, list[tuple[int, Any]]] = {}
    for row in rows:
        highest = float("-inf")
        for index, kept in enumerate(candidates):
            score = kept.scores.get(str(row))
            output = recorded.get((index, row), {}).get("output")
            if score is None or score < highest:
                continue
            if index == 0 or (output is not None and score > highest):
                found[row] = [(index, output)]
            elif output is not None:
                found.setdefault(row, []).append((index, output))
            highest = score
    return found
