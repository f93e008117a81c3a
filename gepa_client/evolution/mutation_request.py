"""What came of one mutation by hand: what was made, and the rows before and after it."""

import statistics
from dataclasses import dataclass
from typing import Any, Literal

from gepa_client.gepa.rows import AnyRow
from protocol import ApplyMutationResult

Result = dict[str, Any]
"""An `ExampleResult` as JSON; a call that failed as a whole stands as an `infra_error` of its own."""


@dataclass(frozen=True)
class Tried:
    """A row with what it gave before the mutation and after it."""

    row: AnyRow
    before: Result
    after: Result


@dataclass(frozen=True)
class Step:
    """A mutation that was made. `tried`: empty where no rows were given."""

    made: ApplyMutationResult
    tried: list[Tried]

    def mean(self, when: Literal["before", "after"]) -> float | None:
        """The mean score `before` or `after`; None where a row has none. A failure of the program scores 0."""
        scores = [score_of(tried.before if when == "before" else tried.after) for tried in self.tried]
        known = [score for score in scores if score is not None]
        return statistics.fmean(known) if scores and len(known) == len(scores) else None


def score_of(result: Result) -> float | None:
    """What a result is worth: 0 where the program failed or took too long, None where nobody knows."""
    if result["status"] in ("program_error", "timeout"):
        return 0.0
    score: float | None = result["score"]
    return score
