"""A component selector of GEPA that has the reflective datasets of an iteration made at once."""

from dataclasses import dataclass, field
from typing import Any

from gepa.core.callbacks import EvaluationEndEvent, IterationStartEvent
from gepa.core.state import GEPAState
from gepa.proposer.reflective_mutation.base import ReflectionComponentSelector
from gepa.strategies.component_selector import RoundRobinReflectionComponentSelector

from gepa_client.gepa.adapter import RemoteAdapter
from gepa_client.gepa.reflective_datasets import DatasetJob


@dataclass
class ConcurrentDatasets:
    """A component selector, and a callback, of GEPA: it selects for all tasks of an iteration when GEPA first asks.

    GEPA selects components and makes the dataset of one task after another. The selection needs no dataset, so that
    those of all tasks are known, and the adapter requests them together. They are the same, in the same order.

    For `gepa.optimize(module_selector=datasets, callbacks=[*adapter.callbacks, datasets])`.

    `selector`: chooses the components, GEPA's default one by default. `perfect_score`: GEPA's setting; None if GEPA
    does not skip minibatches of perfect scores.
    """

    adapter: RemoteAdapter
    selector: ReflectionComponentSelector = field(default_factory=RoundRobinReflectionComponentSelector)
    perfect_score: float | None = 1.0
    _traced: list[tuple[int, list[Any], list[float]]] = field(default_factory=list, init=False)
    """Parents, their trajectories and scores, whose dataset GEPA will make in this iteration."""
    _selected: list[list[str]] = field(default_factory=list, init=False)
    """The components of the tasks that GEPA has yet to ask for."""

    def on_iteration_start(self, event: IterationStartEvent) -> None:  # noqa: ARG002 - GEPA's signature
        """Forget the iteration before, which may have failed."""
        self._traced, self._selected = [], []

    def on_evaluation_end(self, event: EvaluationEndEvent) -> None:
        """Note a parent's minibatch, unless GEPA will skip it."""
        parent, trajectories, scores = event["candidate_idx"], event["trajectories"], event["scores"]
        skipped = self.perfect_score is not None and all(score >= self.perfect_score for score in scores)
        if parent is not None and trajectories and not skipped:
            self._traced.append((parent, trajectories, scores))

    def __call__(
        self,
        state: GEPAState[Any, Any],
        trajectories: list[Any],
        subsample_scores: list[float],
        candidate_idx: int,
        candidate: dict[str, str],  # noqa: ARG002 - one of the state's
    ) -> list[str]:
        """Return the components that a task changes."""
        if not self._selected:
            traced = self._traced or [(candidate_idx, trajectories, subsample_scores)]  # without the callback: one
            self._traced = []
            jobs = []
            for parent, of_parent, scores in traced:
                texts = state.program_candidates[parent]
                jobs.append(DatasetJob(texts, of_parent, self.selector(state, of_parent, scores, parent, texts)))
            self._selected = [job.components for job in jobs]
            self.adapter.expect_datasets(jobs)
        return self._selected.pop(0)
