"""Turns GEPA's callbacks into events, and holds on to the last complete state for a run that is interrupted."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from gepa.core.callbacks import (
    BudgetUpdatedEvent,
    CandidateRejectedEvent,
    EvaluationSkippedEvent,
    IterationEndEvent,
    IterationStartEvent,
    MergeAttemptedEvent,
    MergeRejectedEvent,
    OptimizationEndEvent,
    OptimizationStartEvent,
    ParetoFrontUpdatedEvent,
    ProposalEndEvent,
    ValsetEvaluatedEvent,
)
from gepa.core.result import GEPAResult
from gepa.core.state import GEPAState

from gepa_client.errors import Interrupted
from gepa_client.journal.entries import Kept
from gepa_client.journal.journal import Journal
from gepa_client.journal.run_events import Budget, CandidateFound, Emit, NoProposal, Phase, PhaseName, Rejected
from gepa_client.run.os_errors import stop_for
from gepa_client.run.progress import RunCounters
from gepa_client.transport.error_format import summary

OnBest = Callable[[dict[str, str]], None]


class RunWatcher:
    """A GEPA callback.

    `on_best` is called with the seed and with every candidate that beats all before it; `journal` keeps each one of the
    pool, `counters` what the run's store shows. While the past is told again none of them goes back to it: they hear of
    it when it is over, and of candidates that are not among the `kept` ones at once. `result()` is what GEPA had found
    when the last candidate was complete; None while the seed is being scored.
    """

    def __init__(
        self,
        emit: Emit,
        on_best: OnBest,
        journal: Journal,
        counters: RunCounters,
        *,
        seed: int,
        use_merge: bool,
        kept: Mapping[int, Kept] | None = None,
    ) -> None:
        self._emit = emit
        self._on_best = on_best
        self._journal = journal
        self._counters = counters
        self._seed = seed
        self._use_merge = use_merge
        self._state: GEPAState[Any, int] | None = None
        self._kept: GEPAResult[Any, int] | None = None
        self._in_store = kept or {}
        self._figures: dict[str, Any] = {}
        self._best: tuple[int, float, dict[str, str]] | None = None  # not told yet
        self._front = [0]
        self._proposed = False
        self._skipped = ""
        self._phase: PhaseName | None = None
        self._over = False
        self._seed_kept: Kept | None = None

    def result(self) -> GEPAResult[Any, int] | None:
        """The candidates that were complete, with the metric calls counted to this moment."""
        if self._kept is None or self._state is None:
            return self._kept
        return replace(self._kept, total_metric_calls=self._state.total_num_evals)

    def on_optimization_start(self, _event: OptimizationStartEvent) -> None:
        """The seed is scored first."""
        self._enter("replaying" if self._journal.replaying else "seed")
        self._journal.when_live(self._goes_live)

    def on_optimization_end(self, _event: OptimizationEndEvent) -> None:
        """What goes live from here on are test rows."""
        self._over = True

    def on_iteration_start(self, event: IterationStartEvent) -> None:
        """The state is complete here."""
        self._state = event["state"]
        if not self._journal.replaying:
            self._enter("optimizing")
        self._note(iteration=event["iteration"], metric_calls=self._state.total_num_evals)
        if self._kept is None:
            self._keep()
            self._keep_objectives_of_the_seed()
        self._proposed, self._skipped = False, ""

    def on_pareto_front_updated(self, event: ParetoFrontUpdatedEvent) -> None:
        """Comes just before `on_valset_evaluated` of the candidate that moved the front."""
        self._front = sorted(event["new_front"])

    def on_valset_evaluated(self, event: ValsetEvaluatedEvent) -> None:
        """A candidate is in the pool, the seed included."""
        index = event["candidate_idx"]
        state = self._state
        objectives = dict(state.prog_candidate_objective_scores[index]) if state is not None else {}
        scores = list(state.program_full_scores_val_set) if state is not None else [event["average_score"]]
        best = scores.index(max(scores))
        if best == index:
            self._best = (index, event["average_score"], dict(event["candidate"]))
        found_at = state.num_metric_calls_by_discovery[index] if state is not None else 0
        kept = Kept(
            index=index,
            texts=dict(event["candidate"]),
            parents=list(event["parent_ids"]),
            iteration=event["iteration"],
            number=self._journal.next_number,
            score=event["average_score"],
            scores={str(row_id): score for row_id, score in event["scores_by_val_id"].items()},
            metric_calls=found_at,
            objective_scores=objectives or None,
        )
        if index not in self._in_store or not self._journal.replaying:
            self._journal.keep(kept)
        if state is None:
            self._seed_kept = kept
        seed = {"seed_score": event["average_score"], "metric_calls": event["num_examples_evaluated"]}
        self._note(candidates=index + 1, **(seed if index == 0 else {}))
        self._emit(
            CandidateFound(
                index=index,
                parents=list(event["parent_ids"]),
                iteration=event["iteration"],
                score=event["average_score"],
                texts=dict(event["candidate"]),
                front=self._front,
                best=best,
                metric_calls=state.total_num_evals if state is not None else event["num_examples_evaluated"],
                objective_scores=objectives or None,
            )
        )
        if state is not None:
            self._keep()
        elif self._use_merge and event["average_score"] <= 0:
            raise Interrupted("failed", merge_unusable(f"the seed's validation score is {event['average_score']:g}"))

    def on_budget_updated(self, event: BudgetUpdatedEvent) -> None:
        """GEPA counted a batch."""
        self._note(metric_calls=event["metric_calls_used"])
        self._emit(Budget(metric_calls=event["metric_calls_used"]))

    def on_candidate_rejected(self, event: CandidateRejectedEvent) -> None:
        """A proposal was not better on its minibatch."""
        self._emit(
            Rejected(
                iteration=event["iteration"],
                old_score=event["old_score"],
                new_score=event["new_score"],
                reason=event["reason"],
            )
        )

    def on_merge_attempted(self, _event: MergeAttemptedEvent) -> None:
        """A merge is a proposal."""
        self._proposed = True

    def on_merge_rejected(self, event: MergeRejectedEvent) -> None:
        """A merge was worse than a parent; GEPA gives its scores in the reason only."""
        self._emit(Rejected(iteration=event["iteration"], reason=event["reason"]))

    def on_proposal_end(self, _event: ProposalEndEvent) -> None:
        """New texts came."""
        self._proposed = True

    def on_evaluation_skipped(self, event: EvaluationSkippedEvent) -> None:
        """A minibatch was not reflected on."""
        self._skipped = event["reason"].replace("_", " ")

    def on_iteration_end(self, event: IterationEndEvent) -> None:
        """Tell of iterations that came to nothing; GEPA ends one that is interrupted in the same way."""
        if not self._proposed and not isinstance(sys.exception(), Interrupted):
            self._emit(NoProposal(iteration=event["iteration"], reason=self._skipped or "no new text"))

    def _goes_live(self) -> None:
        """The record is at its end, somewhere between two callbacks; called from any thread."""
        if not self._over:
            self._enter("seed" if self._state is None else "optimizing")
        try:
            self._show()
        except OSError as error:  # GEPA would swallow it
            raise stop_for(error, "writing the best candidate") from error

    def _note(self, **figures: Any) -> None:
        """Figures for the store, which keeps the newer ones it has until the past has been told."""
        self._figures |= figures
        if not self._journal.replaying:
            self._show()

    def _show(self) -> None:
        self._counters.set(**self._figures)
        if self._best is not None:
            best, self._best = self._best, None
            self._counters.found_best(*best)
            self._on_best(best[2])

    def _enter(self, phase: PhaseName) -> None:
        if phase != self._phase:
            self._phase = phase
            self._emit(Phase(phase=phase))

    def _keep_objectives_of_the_seed(self) -> None:
        """Its objective scores are in the state alone, which is not there yet when it is scored."""
        objectives = dict(self._state.prog_candidate_objective_scores[0]) if self._state is not None else {}
        before = self._in_store.get(0)
        known = self._journal.replaying and before is not None and before.objective_scores is not None
        if self._seed_kept is not None and objectives and not known:
            self._journal.keep(replace(self._seed_kept, objective_scores=objectives))

    def _keep(self) -> None:
        if self._state is not None:
            self._kept = GEPAResult.from_state(self._state, seed=self._seed)


class FailFastCallback:
    """Makes a callback's own faults end the run: GEPA would log them once and go on without that callback's work."""

    def __init__(self, callback: object) -> None:
        self._callback = callback

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._callback, name)

        def called(event: Any) -> None:
            try:
                method(event)
            except OSError as error:
                raise stop_for(error, name) from error
            except Exception as error:
                raise Interrupted("failed", f"{name} failed: {summary(error)}") from error

        return called


def merge_unusable(why: str) -> str:
    """Why `use_merge` cannot go on."""
    return (
        f"use_merge cannot be used here: {why}, and GEPA 0.1.4 fails when it draws a common ancestor among candidates "
        "that score 0 or less. Leave use_merge off, or start from a seed that scores above 0"
    )
