"""From the results of a call to the `EvaluationBatch` GEPA reads."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gepa.core.adapter import EvaluationBatch

from gepa_client.errors import BadResponse
from gepa_client.gepa.batch_evaluator import Item, Results
from gepa_client.gepa.rows import AnyRow
from protocol import JsonValue


@dataclass(frozen=True)
class Trajectory:
    """What reflection needs of one traced example: its row and its result as received.

    `scored`: the result that GEPA has the score of; another one where the example was traced again.
    """

    row: AnyRow
    result: dict[str, Any]
    scored: dict[str, Any]


Batch = EvaluationBatch[Trajectory, JsonValue]


class Batches:
    """Makes batches in which the program's failures score `failure_score`, in every objective too.

    An objective is one that any result of the run has named so far: a batch that failed as a whole names none itself.
    """

    def __init__(self, failure_score: float) -> None:
        self._failure_score = failure_score
        self._objectives: dict[str, None] = {}  # a set that keeps the order of appearance

    def make(self, item: Item, results: Results) -> Batch:
        """The batch of one item, in its examples' order.

        Raises:
            BadResponse: results are waiting for a score that this program cannot give.
        """
        if any(result["status"] == "rollout" for result in results):
            raise BadResponse("the program has no score function: its results are rollouts that another must score")
        return EvaluationBatch(
            outputs=[result.get("output") for result in results],
            scores=[self._score(result) for result in results],
            trajectories=trajectories(item, results) if item.trace else None,
            objective_scores=self._objective_scores(results),
            num_metric_calls=_metric_calls(results),
        )

    def _score(self, result: Mapping[str, Any]) -> float:
        return float(result["score"]) if result["status"] == "ok" else self._failure_score

    def _objective_scores(self, results: Results) -> list[dict[str, float]] | None:
        """One mapping per result, failures filled in; None unless every result that has a score has objectives."""
        for result in results:
            self._objectives.update(dict.fromkeys(result.get("objective_scores") or ()))
        scored = [result for result in results if result["status"] == "ok"]
        if not self._objectives or any(not result.get("objective_scores") for result in scored):
            return None
        failed = dict.fromkeys(self._objectives, self._failure_score)
        return [dict(result["objective_scores"]) if result["status"] == "ok" else dict(failed) for result in results]


def trajectories(item: Item, results: Results) -> list[Trajectory]:
    """One for each example of a traced item."""
    return [Trajectory(row, result, result) for row, result in zip(item.rows, results, strict=True)]


def _metric_calls(results: Results) -> int | None:
    """What the batch counts for in GEPA's budget, where every result says its share in `metric_calls`.

    At least 1: a program that says 0 for everything would make a run without end.
    """
    total = 0
    for result in results:
        share = result.get("metric_calls")
        if not isinstance(share, int) or isinstance(share, bool) or share < 0:
            return None
        total += share
    return max(total, 1) if results else 0
