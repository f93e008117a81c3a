"""Compare the best candidates of a search on rows that it has not used.

These are validation rows that a search on a sample left out, and with `tie_rows` training rows that no minibatch had.
With `tie_rows` the candidates that tie are compared, else the best one; after a search on a sample the seed too.
"""

from collections.abc import Set
from functools import partial
from typing import Any

from gepa.core.result import GEPAResult

from gepa_client.analysis.gepa_result import ChosenResult
from gepa_client.analysis.ties import MOST, best_of, decide, finalists
from gepa_client.gepa.adapter import RemoteAdapter
from gepa_client.gepa.rows import RowLoader, rows_left
from gepa_client.journal.answer_entries import TieDecision, TiePlan, part_of_left_rows, part_of_ties
from gepa_client.journal.entries import TIES
from gepa_client.journal.requests import digest_of, request_key
from gepa_client.journal.run_events import Emit, Phase, TiesCompared, Warned
from gepa_client.run.splits import Splits
from gepa_client.run.strategies import sampled_rows
from gepa_client.settings.run_config import RunConfig

Result = GEPAResult[Any, int]


SHARE = 0.1
"""The largest share of the metric calls that the comparison on validation rows takes by default."""


def final_rows(config: RunConfig, splits: Splits) -> int:
    """Return on how many validation rows that the search leaves out the best candidates are compared, by default.

    They are as many as `SHARE` of the metric calls pays for; without a limit on these, as many as the sample has.
    """
    sample, budget = len(sampled_rows(config, splits)), config.max_metric_calls
    return min(len(splits.val) - sample, sample if budget is None else int(SHARE * budget) // _most(config))


def reserved_calls(config: RunConfig, splits: Splits) -> int:
    """Return the metric calls that the search leaves for comparing the best candidates."""
    if splits.training_only:
        return 0
    return _most(config) * (min(config.tie_rows, len(splits.train)) + len(_left(config, splits)))


def _most(config: RunConfig) -> int:
    """Return how many candidates are compared at most: those that tie, or the best one and the seed."""
    return MOST if config.tie_rows else 2


def best_of_rest(result: Result | None, dropped: Set[int]) -> Result | None:
    """Return the result with the best of the candidates that no user dropped; as it is if none was."""
    if result is None or not dropped:
        return result
    return ChosenResult.of(result, best_of(result.val_aggregate_scores, dropped), dropped=frozenset(dropped))


def dropped_in(result: Result) -> frozenset[int]:
    """Return the candidates of a result that users dropped."""
    return result.dropped if isinstance(result, ChosenResult) else frozenset()


def best_and_seed_scores(result: Result) -> tuple[float, float]:
    """Return the scores of best candidate and seed, on the rows of the search and those of the comparison if any."""
    best, scores = result.best_idx, result.val_aggregate_scores
    whole = result.whole if isinstance(result, ChosenResult) else {}
    return (whole[best], whole[0]) if whole.keys() >= {best, 0} else (scores[best], scores[0])


def recorded_best(adapter: RemoteAdapter, config: RunConfig, result: Result, emit: Emit) -> Result:
    """Return the result with the best candidate that a recorded decision names; as it is if there is none."""
    part = part_of_ties(len(result.candidates), dropped=len(dropped_in(result)))
    entry = adapter.journal.storage.read(part, 1)
    return result if entry is None else _chosen(TieDecision.model_validate_json(entry.answer), config, result, emit)


def compare_ties(adapter: RemoteAdapter, config: RunConfig, splits: Splits, result: Result, emit: Emit) -> Result:
    """Return the result with the best candidate, after the best ones were evaluated on fresh rows.

    A training row is fresh if no minibatch has had it. The plan and the decision are entries of a stream of their own,
    by the size of the pool; so are each candidate's results on training rows. Its results on validation rows are
    entries of a stream for any size, which a later comparison has too. The search and its replay stay as they are.

    Raises: as `RemoteAdapter.evaluate`.
    """
    dropped = dropped_in(result)
    left = _left(config, splits)
    ties = bool(config.tie_rows) and not splits.training_only
    indices = finalists(result.val_subscores, dropped, ties=ties, seed=bool(left))
    if len(indices) < 2:
        return result
    rows = [*left, *(_fresh(splits.train, config) if ties else ())]
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
    validation = set(splits.val.all_ids())
    left_rows = splits.val.fetch([row for row in plan.rows if row in validation])
    further = splits.train.fetch([row for row in plan.rows if row not in validation])
    fresh = {
        index: [
            *adapter.score_rows(part_of_left_rows(index), result.candidates[index], left_rows).scores,
            *adapter.score_rows(part(index), result.candidates[index], further).scores,
        ]
        for index in plan.candidates
    }
    before = {index: list(result.val_subscores[index].values()) for index in plan.candidates}
    decision = decide(before, fresh, len(left_rows))
    [made] = stream.ask([request_key(TIES, f"decide between tied candidates of {pool}", indices)])
    if not made.recorded:
        with stream.executing([made]):
            stream.record((made, decision.model_dump(exclude_defaults=True)))
        stream.settle()
    else:
        decision = TieDecision.model_validate(made.answer)
    return _chosen(decision, config, result, emit)


def _chosen(decision: TieDecision, config: RunConfig, result: Result, emit: Emit) -> Result:
    further = decision.rows * len(decision.candidates)
    whole = {each.index: each.mean for each in decision.candidates} if decision.validation_left else {}
    chosen = ChosenResult.of(result, decision.best, further, dropped_in(result), whole)
    emit(TiesCompared(**decision.model_dump(), asked=config.tie_rows, metric_calls=chosen.total_metric_calls or 0))
    return chosen


def _left(config: RunConfig, splits: Splits) -> list[int]:
    """Return the ids of the validation rows for the comparison at the end, which the search leaves out."""
    left = rows_left(splits.val, sampled_rows(config, splits))
    return sorted(left, key=lambda row: digest_of([TIES, config.seed, row]))[: config.race_final_rows or 0]


def _fresh(train: RowLoader, config: RunConfig) -> list[int]:
    """Return the ids of at most `tie_rows` training rows that were never fetched, in an order by the run's seed."""
    unused = [row for row in train.all_ids() if row not in train.fetched]
    return sorted(unused, key=lambda row: digest_of([TIES, config.seed, row]))[: config.tie_rows]
