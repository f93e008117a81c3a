"""Compare best candidates that tie on the validation rows on training rows that the search has not used."""

from collections.abc import Set
from functools import partial
from typing import Any

from gepa.core.result import GEPAResult

from gepa_client.analysis.chosen_result import ChosenResult
from gepa_client.analysis.ties import MOST, decide, tied
from gepa_client.gepa.adapter import RemoteAdapter
from gepa_client.gepa.rows import RowLoader
from gepa_client.journal.entries import TIES
from gepa_client.journal.requests import digest_of, request_key
from gepa_client.journal.run_events import Emit, Phase, TiesCompared, Warned
from gepa_client.journal.tie_entries import TieDecision, TiePlan, part_of_ties
from gepa_client.run.splits import Splits
from gepa_client.settings.run_config import RunConfig
from gepa_client.steering.objections import best_of

Result = GEPAResult[Any, int]


def reserved_calls(config: RunConfig, splits: Splits) -> int:
    """Return the metric calls that the search leaves for comparing candidates that tie."""
    return 0 if splits.val is splits.train else MOST * min(config.tie_rows, len(splits.train))


def best_of_rest(result: Result | None, dropped: Set[int]) -> Result | None:
    """Return the result with the best of the candidates that no user dropped; as it is if none was."""
    if result is None or not dropped:
        return result
    return ChosenResult.of(result, best_of(result.val_aggregate_scores, dropped), dropped=frozenset(dropped))


def dropped_in(result: Result) -> frozenset[int]:
    """Return the candidates of a result that users dropped."""
    return result.dropped if isinstance(result, ChosenResult) else frozenset()


def recorded_best(adapter: RemoteAdapter, config: RunConfig, result: Result, emit: Emit) -> Result:
    """Return the result with the best candidate that a recorded decision names; as it is if there is none."""
    part = part_of_ties(len(result.candidates), dropped=len(dropped_in(result)))
    entry = adapter.journal.storage.read(part, 1)
    return result if entry is None else _chosen(TieDecision.model_validate_json(entry.answer), config, result, emit)


def compare_ties(adapter: RemoteAdapter, config: RunConfig, splits: Splits, result: Result, emit: Emit) -> Result:
    """Return the result with the best candidate, after those that tie were evaluated on fresh training rows.

    A training row is fresh if no minibatch has had it. The plan and the decision are entries of a stream of their own,
    by the size of the pool, and so are the results of each candidate: the search and its replay stay as they are.

    Raises: as `RemoteAdapter.evaluate`.
    """
    dropped = dropped_in(result)
    indices = tied(result.val_subscores, dropped)
    if not reserved_calls(config, splits) or len(indices) < 2:
        return result
    rows = _fresh(splits.train, config)
    pool, journal = len(result.candidates), adapter.journal
    part = partial(part_of_ties, pool, dropped=len(dropped))
    stream = journal.stream(part())
    [asked] = stream.ask([request_key(TIES, f"compare tied candidates of {pool}", indices)])
    if not asked.recorded:
        if not rows:
            emit(Warned(message=f"{len(indices)} candidates tie on validation, and no training row is fresh"))
            return result
        plan = TiePlan(candidates=indices, rows=rows, searched=journal.next_number)
        with stream.executing([asked]):
            stream.record((asked, plan.model_dump()))
        stream.settle()
    else:
        plan = TiePlan.model_validate(asked.answer)
    emit(Phase(phase="ties"))
    examples = splits.train.fetch(plan.rows)
    fresh = {
        index: adapter.score_rows(part(index), result.candidates[index], examples).scores for index in plan.candidates
    }
    decision = decide({index: list(result.val_subscores[index].values()) for index in plan.candidates}, fresh)
    [made] = stream.ask([request_key(TIES, f"decide between tied candidates of {pool}", indices)])
    if not made.recorded:
        with stream.executing([made]):
            stream.record((made, decision.model_dump()))
        stream.settle()
    else:
        decision = TieDecision.model_validate(made.answer)
    return _chosen(decision, config, result, emit)


def _chosen(decision: TieDecision, config: RunConfig, result: Result, emit: Emit) -> Result:
    further = decision.rows * len(decision.candidates)
    chosen = ChosenResult.of(result, decision.best, further, dropped_in(result))
    emit(TiesCompared(**decision.model_dump(), asked=config.tie_rows, metric_calls=chosen.total_metric_calls or 0))
    return chosen


def _fresh(train: RowLoader, config: RunConfig) -> list[int]:
    """Return the ids of at most `tie_rows` training rows that were never fetched, in an order by the run's seed."""
    unused = [row for row in train.all_ids() if row not in train.fetched]
    return sorted(unused, key=lambda row: digest_of([TIES, config.seed, row]))[: config.tie_rows]
