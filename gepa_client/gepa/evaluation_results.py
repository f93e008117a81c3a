"""Results of examples: their costs, their prices, their scores, and the `EvaluationBatch` that GEPA reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from gepa.core.adapter import EvaluationBatch

from evolverpc_common.exact_values import readable
from evolverpc_common.model_prices import PriceTable, priced
from gepa_client.errors import NO_SCORE, BadResponse
from gepa_client.gepa.rows import AnyRow
from gepa_client.journal.history import score_of
from gepa_client.transport.calls import INCONCLUSIVE, Reply
from protocol import JsonValue, Usage

T = TypeVar("T")

Results = list[dict[str, Any]]
"""`ExampleResult`s as received, one for each example, in order."""


@dataclass(frozen=True)
class Trajectory:
    """What reflection needs of one traced example: its row and its result as received.

    `scored`: the result whose score GEPA has; another one if the example was traced again. `number`: of its entry in
    the journal.
    """

    row: AnyRow
    result: dict[str, Any]
    scored: dict[str, Any]
    number: int


Batch = EvaluationBatch[Trajectory, JsonValue]


class BatchBuilder:
    """Builds batches in which the program's failures score `failure_score`, in every objective too.

    The objectives are those that any result of the run has named so far: a batch that fails as a whole names none.
    """

    def __init__(self, failure_score: float) -> None:
        self._failure_score = failure_score
        self._objectives: dict[str, None] = {}  # a set that keeps the order of appearance

    def build(
        self,
        rows: Sequence[AnyRow],
        results: Results,
        *,
        traced: Sequence[int] | None = None,
        fresh: Results | None = None,
    ) -> Batch:
        """Return the batch of some rows, in their order.

        `traced`: the numbers of their entries if it has trajectories. `fresh`: those results that were evaluated for
        it, if some were not: they alone are metric calls.

        Raises:
            BadResponse: results wait for a score that this program cannot give.
        """
        if any(result["status"] == "rollout" for result in results):
            raise BadResponse(NO_SCORE)
        trajectories = None
        if traced is not None:
            numbered = zip(rows, results, traced, strict=True)
            trajectories = [Trajectory(row, result, result, number) for row, result, number in numbered]
        return EvaluationBatch(
            outputs=[result.get("output") for result in results],
            scores=[self.score(result) for result in results],
            trajectories=trajectories,
            objective_scores=self._objective_scores(results),
            num_metric_calls=_metric_calls(results) if fresh is None else _metric_calls(fresh, len(fresh)),
        )

    def score(self, result: Mapping[str, Any]) -> float:
        """Return the score that GEPA gets for a result."""
        return score_of(result, self._failure_score)

    def _objective_scores(self, results: Results) -> list[dict[str, float]] | None:
        """Return one mapping per result, failures filled in; None unless every scored result has objectives."""
        for result in results:
            self._objectives.update(dict.fromkeys(result.get("objective_scores") or ()))
        scored = [result for result in results if result["status"] == "ok"]
        if not self._objectives or any(not result.get("objective_scores") for result in scored):
            return None
        failed = dict.fromkeys(self._objectives, self._failure_score)
        return [dict(result["objective_scores"]) if result["status"] == "ok" else dict(failed) for result in results]


def _metric_calls(results: Results, unreported: int | None = None) -> int | None:
    """Return what the batch counts for in GEPA's budget, if every result reports its share in `metric_calls`.

    At least 1: a program that reports 0 for everything would make an endless run. `unreported`: if one does not.
    """
    total = 0
    for result in results:
        share = result.get("metric_calls")
        if not isinstance(share, int) or isinstance(share, bool) or share < 0:
            return unreported
        total += share
    return max(total, 1) if results else 0


def reply_with(prices: PriceTable, results: Results) -> Reply[Results]:
    """Return the reply that holds results with their costs, priced here if the server did not."""
    for result in results:
        if usage := result.get("usage"):
            result["usage"] = priced(usage, prices)
    cost = {
        "seconds": sum(result["seconds"] for result in results),
        "usage": _total_usage(results),
        "examples": len(results),
        "unpriced": sum(map(_is_unpriced, results)),
    }
    failed = [result["status"] for result in results if result["status"] != "ok"]
    outcome = next((status for status in failed if status in INCONCLUSIVE), failed[0] if failed else "ok")
    return Reply(results, outcome, **cost)


def priced_reply(value: T, usage: Usage | None, prices: PriceTable) -> Reply[T]:
    """Return the reply of a call that runs no examples, with what its model calls cost."""
    reported = None if usage is None else priced(usage.model_dump(exclude_none=True), prices)
    return Reply(value, usage=reported, unpriced=int(reported is not None and reported.get("cost_usd") is None))


def instance_of(result: Mapping[str, Any]) -> str | None:
    """Return the instance that holds the trajectory of a result, from its reference."""
    ref = result.get("trajectory_ref")
    return ref.partition("/")[0] if isinstance(ref, str) else None


def as_rollout(result: Mapping[str, Any], *, with_trajectory: bool, exact: bool) -> dict[str, Any]:
    """Return what a scorer gets of a result: without usage, and with its trajectory only if the scorer reads it.

    `exact`: it gets the markers of an output; else integers beyond 2^53 - 1 as texts, as the contract states.
    """
    kept_back = ("usage",) if with_trajectory else ("trajectory", "trajectory_ref", "usage")
    kept = {key: value for key, value in result.items() if key not in kept_back}
    return kept if exact else {**kept, "output": readable(kept.get("output"))}


def with_score(rollout: Mapping[str, Any], scored: Mapping[str, Any]) -> dict[str, Any]:
    """Return a rollout with the score of another endpoint."""
    score = {
        key: scored[key]
        for key in ("status", "score", "feedback", "component_feedback", "objective_scores", "error")
        if scored.get(key) is not None or key in ("status", "score")
    }
    return {**rollout, **score, "seconds": rollout["seconds"] + scored["seconds"]}


def _total_usage(results: Results) -> dict[str, Any] | None:
    """Return the sum of the reported usages; None if there are none."""
    usages = [result["usage"] for result in results if result.get("usage")]
    if not usages:
        return None
    keys = {key: None for usage in usages for key, value in usage.items() if isinstance(value, int | float)}
    return {key: sum(value for usage in usages if isinstance(value := usage.get(key), int | float)) for key in keys}


def _is_unpriced(result: Mapping[str, Any]) -> bool:
    """Whether a result may have cost an amount that is not known.

    An attempt that the infrastructure refused (a 429, a lost connection) and that reports no usage cost nothing.
    """
    usage = result.get("usage") or {}
    return usage.get("cost_usd") is None and not (result["status"] in INCONCLUSIVE and not usage)
