"""End a search when a further gain that matters is unlikely, by GEPA's state alone, so that a replay ends there too."""

from dataclasses import dataclass
from typing import Any

from gepa.core.state import GEPAState

from gepa_client.analysis.statistics.further_gain import further_gain

UNLIKELY = 0.05
"""The chance of a further gain below which a search ends."""

LEAST_ITERATIONS = 10


@dataclass
class CertainStop:
    """A GEPA stopper. `gain`: of the best validation score that matters. `reason`: why it ended the search, or None.

    `max_metric_calls`, `max_iterations`: limits of the run, at least one of them.
    """

    gain: float
    max_metric_calls: int | None
    max_iterations: int | None
    reason: str | None = None

    def __call__(self, gepa_state: GEPAState[Any, Any]) -> bool:
        """Return whether the search is over."""
        done, seed_rows = gepa_state.i + 1, len(gepa_state.prog_candidate_val_subscores[0])
        if done < LEAST_ITERATIONS:
            return False
        scores, found_at = gepa_state.program_full_scores_val_set, gepa_state.num_metric_calls_by_discovery
        calls = gepa_state.total_num_evals - seed_rows
        gains: list[float] = []
        best, recent = scores[0], 0
        for score, at in zip(scores[1:], found_at[1:], strict=True):
            if score > best:
                gains.append(score - best)
                best = score
                recent += at - seed_rows >= calls / 2
        left = self._left(done, calls / done, gepa_state.total_num_evals)
        further = further_gain(gains, recent, left / (done / 2), self.gain)
        if further.chance >= UNLIKELY:
            return False
        sizes = f", the later ones by {further.mean:.2g} on average" if further.mean is not None else ""
        self.reason = (
            f"stop_when_certain of {self.gain:g} is reached: a chance of {further.chance:.2g} that the best validation "
            f"score of {best:.4g} rises by more in {left:,.0f} further iterations; it rose {len(gains)} times in "
            f"{done:,}, {recent} of them in the later half{sizes}"
        )
        return True

    def _left(self, done: int, calls_each: float, calls: int) -> float:
        """Return the iterations that the limits leave."""
        left = [] if self.max_iterations is None else [float(self.max_iterations - done)]
        if self.max_metric_calls is not None:
            left.append((self.max_metric_calls - calls) / max(calls_each, 1.0))
        return max(0.0, min(left))
