"""GEPA's own result object of a recorded run."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, fields
from typing import Any, Self

from gepa.core.result import GEPAResult

from evolverpc_common.display_text import command
from gepa_client.analysis.ties import best_candidate, dropped_of
from gepa_client.errors import JournalError
from gepa_client.journal.entries import CandidateRecord, StoredRun
from gepa_client.journal.history import results, validation_rows
from gepa_client.journal.store import Store, default_store, find_run, named_store, open_store


@dataclass(frozen=True)
class ChosenResult(GEPAResult[Any, int]):
    """A result whose best candidate is `chosen`, by index; GEPA's is the first with the highest validation score.

    `dropped`: candidates that users dropped. `whole`: mean scores of the candidates that were compared
    on validation rows that the search left out, on these, the rows of the search, and fresh training rows if any.
    """

    chosen: int = 0
    dropped: frozenset[int] = frozenset()
    whole: Mapping[int, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        result: GEPAResult[Any, int],
        chosen: int,
        further_calls: int = 0,
        dropped: frozenset[int] = frozenset(),
        whole: Mapping[int, float] | None = None,
    ) -> Self:
        """Return a result with another best candidate, and with further metric calls."""
        found = {each.name: getattr(result, each.name) for each in fields(GEPAResult)}
        found["total_metric_calls"] = (result.total_metric_calls or 0) + further_calls
        return cls(**found, chosen=chosen, dropped=dropped, whole=whole or {})

    @property
    def best_idx(self) -> int:
        """The index of the best candidate."""
        return self.chosen


def _fronts(scored: Sequence[dict[str, float]]) -> dict[str, set[int]]:
    """Return the candidates with the highest score by key; `scored`: of each candidate."""
    highest: dict[str, float] = {}
    found: dict[str, set[int]] = {}
    for index, scores in enumerate(scored):
        for key, score in scores.items():
            if key not in highest or score > highest[key]:
                highest[key], found[key] = score, {index}
            elif score == highest[key]:
                found[key].add(index)
    return found


def load_result(run: str, store: str | None = None) -> GEPAResult[Any, int]:
    """Return what `gepa.optimize` returned, or would return if it stopped now, for a run in a store.

    `run`: an id, the beginning of one, a name, or `last`. `store`: a file or `mongodb://...`; without it GEPA_STORE,
    else `runs/evolverpc.db`. The ids of rows are GEPA's integers, training rows first.

    `best_outputs_valset` holds the recorded outputs of the candidates best at each row, None if the run did not keep
    them. `run_dir` is None.

    Raises:
        NoSuchRun: the store has no such run. JournalError: it has no candidate yet, or the store cannot be read.
    """
    with closing(open_store(store or default_store())) as opened:
        return result_of(opened, find_run(opened, run))


def result_of(store: Store, run: StoredRun) -> GEPAResult[Any, int]:
    """Return the result of a run in an open store; see `load_result`."""
    candidates = store.candidates(run.id)
    if not candidates:
        raise JournalError(
            f"run {run.id} is {run.status} and has no candidate yet: its seed has not been scored. "
            f"`{command('resume', run.id, store=named_store(store.url))}` resumes it"
        )
    best = best_candidate(store, run.id, candidates)
    fronts = _fronts([kept.scores if kept.dropped is None else {} for kept in candidates])
    rows = {int(row): best for row, best in fronts.items()}
    found = [dict(kept.objective_scores or {}) for kept in candidates]
    objectives = _fronts([means if kept.dropped is None else {} for kept, means in zip(candidates, found, strict=True)])
    return ChosenResult(
        chosen=best.index if best is not None else 0,
        dropped=frozenset(dropped_of(candidates)),
        candidates=[dict(kept.texts) for kept in candidates],
        parents=[list(kept.parents) or [None] for kept in candidates],
        val_aggregate_scores=[kept.score for kept in candidates],
        val_subscores=[{int(row): score for row, score in kept.scores.items()} for kept in candidates],
        per_val_instance_best_candidates=rows,
        discovery_eval_counts=[kept.metric_calls for kept in candidates],
        val_aggregate_subscores=found if objectives else None,
        per_objective_best_candidates=objectives or None,
        objective_pareto_front={name: found[min(best)][name] for name, best in objectives.items()} or None,
        best_outputs_valset=_best_outputs(store, run, candidates, rows),
        # GEPA begins to count when the seed has been scored, with its rows
        total_metric_calls=run.counters.get("metric_calls", len(candidates[0].scores)),
        num_full_val_evals=len(candidates),
        seed=run.config.get("seed"),
    )


def _best_outputs(
    store: Store, run: StoredRun, candidates: list[CandidateRecord], rows: Iterable[int]
) -> dict[int, list[tuple[int, Any]]]:
    """By row the outputs of the candidates best there; a later one that gave no output changes nothing, as in GEPA."""
    wanted = {row: _not_below_earlier(candidates, str(row)) for row in rows}
    by_id = {row.row_id: row for row in validation_rows(store, run.id)}
    places = ((kept, by_id[row]) for row, best in wanted.items() if row in by_id for kept, _ in best)
    outputs = results(store, run.id, places, lambda _, result: result.get("output"))
    found: dict[int, list[tuple[int, Any]]] = {}
    for row, best in wanted.items():
        for kept, is_better in best:
            output = outputs.pop((kept.index, row), None)
            if kept.index == 0 or (output is not None and is_better):
                found[row] = [(kept.index, output)]
            elif output is not None:
                found.setdefault(row, []).append((kept.index, output))
    return found


def _not_below_earlier(candidates: list[CandidateRecord], row: str) -> list[tuple[CandidateRecord, bool]]:
    """Return the candidates whose score on a row no earlier one exceeds, and whether it exceeds all of those."""
    found = []
    highest = float("-inf")
    for kept in candidates:
        score = kept.scores.get(row)
        if score is not None and score >= highest:
            found.append((kept, score > highest))
            highest = score
    return found
