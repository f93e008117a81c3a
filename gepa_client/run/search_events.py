"""GEPA's search as events: each proposal from its records to its outcome, other callbacks; the last complete state."""

import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from gepa.core.callbacks import (
    BudgetUpdatedEvent,
    CandidateRejectedEvent,
    EvaluationEndEvent,
    EvaluationSkippedEvent,
    IterationEndEvent,
    IterationStartEvent,
    MergeAttemptedEvent,
    MergeRejectedEvent,
    OptimizationEndEvent,
    OptimizationStartEvent,
    ParetoFrontUpdatedEvent,
    ProposalEndEvent,
    ReflectiveDatasetBuiltEvent,
    ValsetEvaluatedEvent,
)
from gepa.core.result import GEPAResult
from gepa.core.state import GEPAState
from gepa.proposer.base import CandidateProposal
from gepa.proposer.reflective_mutation.reflection_lm import ReflectionJob
from gepa.strategies.acceptance import AcceptanceCriterion
from gepa.strategies.proposal_selection import SelectionStrategy

from gepa_client.analysis.ties import best_of
from gepa_client.errors import Interrupted
from gepa_client.gepa.adapter import RemoteAdapter
from gepa_client.gepa.reflection_prompt import FittedRecords
from gepa_client.gepa.reflection_strategies import ReflectionStrategy, TextProposal
from gepa_client.gepa.reflective_datasets import Records
from gepa_client.journal.entries import now
from gepa_client.journal.journal import Journal
from gepa_client.journal.requests import SHOWN, digest_of
from gepa_client.journal.run_events import (
    Budget,
    CandidateFound,
    Emit,
    NoProposal,
    Phase,
    PhaseName,
    ProposalBegun,
    ProposalEvaluated,
    ProposalMade,
    RecordsCut,
    Rejected,
    Steered,
    UnusableAnswer,
)
from gepa_client.journal.steer_entries import Drop, SetBudget, SteerEntry, described
from gepa_client.run.failures import no_merge, stop_for
from gepa_client.steering.steering import ActiveRequests
from protocol.code import CODE_COMPONENTS, added_to

Proposal = CandidateProposal[Any]
State = GEPAState[Any, Any]

PERFECT = "all_scores_perfect"
"""GEPA's reason for a minibatch that it does not reflect on."""


@dataclass(frozen=True)
class Outcome:
    """A proposal that GEPA rejected or kept; its fields are those of `Rejected`."""

    proposal: int
    candidate: str
    unchanged: bool
    made: Proposal


@dataclass
class ProposalWatcher(ReflectionStrategy):
    """A GEPA callback, and GEPA's reflection and selection strategies, whose order GEPA keeps.

    `reflection`, `selection`: the strategies that propose and select; `active_requests`: texts by hand.
    """

    emit: Emit
    adapter: RemoteAdapter
    active_requests: ActiveRequests
    reflection: Any
    selection: SelectionStrategy
    dropped: dict[str, None] = field(default_factory=dict, init=False)
    """Why proposals of the iteration have no new text of a component, each reason once."""
    refused: bool = field(default=False, init=False)
    """A proposal of the iteration has no texts, because its change of code was rejected."""
    _iteration: int = field(default=0, init=False)
    _begun: list[int] = field(default_factory=list, init=False)
    _children: deque[tuple[int, str, bool]] = field(default_factory=deque, init=False)
    """Number, beginning of the digest, and whether unchanged, of the proposals that GEPA has yet to evaluate."""
    _evaluated: list[tuple[int, str, bool]] = field(default_factory=list, init=False)
    _rejected: deque[Outcome] = field(default_factory=deque, init=False)
    _kept: deque[Outcome] = field(default_factory=deque, init=False)

    def on_iteration_start(self, event: IterationStartEvent) -> None:
        """Forget the proposals of the iteration before."""
        self._iteration = event["iteration"]
        self._begun, self._evaluated, self.dropped, self.refused = [], [], {}, False
        self._children, self._rejected, self._kept = deque(), deque(), deque()

    def on_reflective_dataset_built(self, event: ReflectiveDatasetBuiltEvent) -> None:
        """Emit that a proposal begins."""
        made = self.adapter.dataset_made
        assert made is not None, "GEPA has got it"  # noqa: S101
        number, job = made
        self._begun.append(number)
        self.emit(
            ProposalBegun(
                iteration=self._iteration,
                proposal=number,
                parent=event["candidate_idx"],
                components=list(job.components),
                rows=[each.row.id for each in job.traced],
                results=[each.number for each in job.traced],
                score=sum(self.adapter.batches.score(each.scored) for each in job.traced),
            )
        )

    def on_evaluation_end(self, event: EvaluationEndEvent) -> None:
        """Emit the results of a proposal on its minibatch; GEPA evaluates them in the order of their texts."""
        if event["candidate_idx"] is not None or len(event["parent_ids"]) != 1 or not self._children:
            return
        number, candidate, unchanged = child = self._children.popleft()
        self.emit(
            ProposalEvaluated(
                iteration=self._iteration,
                proposal=number,
                results=self.adapter.evaluated[len(self._evaluated)],
                score=sum(event["scores"]),
                candidate=candidate,
                unchanged=unchanged,
            )
        )
        self._evaluated.append(child)

    def next_rejected(self) -> Outcome | None:
        """Return the proposal that GEPA rejects next; None if it is none of this iteration's."""
        return self._rejected.popleft() if self._rejected else None

    def next_kept(self) -> int | None:
        """Return the number of the proposal that enters the pool next; None for a merge."""
        return self._kept.popleft().proposal if self._kept else None

    def propose(self, jobs: Sequence[ReflectionJob]) -> list[TextProposal]:
        """Return one proposal per job, in order; emit each, after the answers that were not used for it."""
        hints = self.active_requests.hints()
        if self.active_requests.current is not None:
            found = [self.active_requests.propose(self.adapter.journal)]
        else:
            found = [proposal for proposal, _ in self.reflection.reflect_many(jobs)]
            self.active_requests.count_proposals(len(jobs))
        for number, (parent, _, _), made in zip(self._begun, jobs, found, strict=True):
            for unusable in made.unusable:
                if unusable.dropped:
                    self.dropped[unusable.then or unusable.reason] = None
                self.emit(UnusableAnswer(iteration=self._iteration, proposal=number, **dict(unusable)))
            if made.new_texts:
                texts = {**parent, **made.new_texts}
                self._children.append((number, digest_of(texts)[:SHOWN], texts == parent))
            elif made.mutation is not None:
                self.refused = True
            self.emit(
                ProposalMade(
                    iteration=self._iteration,
                    proposal=number,
                    texts=made.new_texts,
                    answers=made.answers,
                    hints=[] if made.by_hand is not None else list(hints),
                    mutation=made.mutation,
                    by_hand=made.by_hand,
                    request=made.request,
                )
            )
        return found

    def select(self, proposals: list[Proposal], state: State, acceptance: AcceptanceCriterion) -> list[Proposal]:
        """Return the proposals that the other strategy selects. Raises: as that.

        GEPA will keep these, of equal texts the first, and reject the others, both in its order.
        """
        selected = self.selection.select(proposals, state, acceptance)
        known = {id(one): Outcome(*of, one) for one, of in zip(proposals, self._evaluated, strict=True)}
        texts: dict[str, Outcome] = {}
        for one in selected:
            texts.setdefault(digest_of(one.candidate), known[id(one)])
        self._kept = deque(texts.values())
        kept = {each.proposal for each in self._kept}
        self._rejected = deque(each for each in known.values() if each.proposal not in kept)
        return selected


@dataclass
class RunWatcher:
    """A GEPA callback.

    `on_best` is called with the seed and with every candidate that beats all before it, after a replay with the best
    alone, and then after a call of `on_live`. `result()` is GEPA's result at the last complete candidate; None while
    the seed is being scored. `fitted`: returns the records of a component as the prompt shows them, by candidate,
    dataset and name; None if the program proposes. `proposals`: follows those of an iteration; its callbacks come
    first. `rejecting`: returns the fields of `Rejected` by which the selection states why it rejected a proposal.
    `dropped`: candidates that a user dropped.

    `validated_from_cache`: validation scores that GEPA's cache had, so that they were not evaluated.
    """

    emit: Emit
    on_best: Callable[[dict[str, str]], None]
    journal: Journal
    on_live: Callable[[], None]
    seed: int
    use_merge: bool
    proposals: ProposalWatcher
    fitted: Callable[[Mapping[str, str], Records, str], FittedRecords] | None = None
    rejecting: Callable[[Proposal], Mapping[str, Any]] = lambda _proposal: {}
    dropped: Set[int] = frozenset()

    def __post_init__(self) -> None:
        self._state: GEPAState[Any, int] | None = None
        self._seed: ValsetEvaluatedEvent | None = None  # scored, while GEPA has no state
        self._complete: GEPAResult[Any, int] | None = None
        self._best: dict[str, str] | None = None  # not shown yet
        self._front = [0]
        self._proposed = False
        self._texts: dict[int, dict[str, str]] = {}
        self._skipped, self._perfect = "", False
        self._phase: PhaseName | None = None
        self._over = False
        self.validated_from_cache = 0

    def result(self) -> GEPAResult[Any, int] | None:
        """Return the complete candidates, with the metric calls counted up to now."""
        if self._complete is None or self._state is None:
            return self._complete
        return replace(self._complete, total_metric_calls=self._state.total_num_evals)

    def on_optimization_start(self, _event: OptimizationStartEvent) -> None:
        """Enter the first phase: replaying, or scoring the seed."""
        self._enter("replaying" if self.journal.replaying else "seed")
        self.journal.on_first_write(self._show_withheld)

    def on_optimization_end(self, _event: OptimizationEndEvent) -> None:
        """Show what was held back; real calls from here on are for ties and test rows, whose figures add to these."""
        if not self.journal.replays:
            self._show()
        self._over = True

    def begun(self, state: GEPAState[Any, int]) -> None:
        """Keep the state, which there is once the seed is scored, and emit the seed."""
        if self._seed is None:
            return
        seed, self._seed, self._state = self._seed, None, state
        self._found(seed, state)
        if self.use_merge and seed["average_score"] <= 0:
            raise Interrupted("failed", no_merge(f"the seed's mean score is {seed['average_score']:g}"))

    def on_iteration_start(self, _event: IterationStartEvent) -> None:
        """Enter the phase of the search."""
        if not self.journal.replaying:
            self._enter("optimizing")
        self._proposed, self._skipped, self._perfect = False, "", False

    def on_pareto_front_updated(self, event: ParetoFrontUpdatedEvent) -> None:
        """Note the front; called just before `on_valset_evaluated` of the candidate that moved it."""
        self._front = sorted(event["new_front"])

    def on_valset_evaluated(self, event: ValsetEvaluatedEvent) -> None:
        """Emit a candidate of the pool."""
        if self._state is None:
            self._seed = event
        else:
            self._found(event, self._state)

    def _found(self, event: ValsetEvaluatedEvent, state: GEPAState[Any, int]) -> None:
        index, before = event["candidate_idx"], state.num_metric_calls_by_discovery[event["candidate_idx"]]
        texts = self._texts[index] = dict(event["candidate"])
        best = best_of(list(state.program_full_scores_val_set), self.dropped)
        if best == index:
            self._best = texts
        if index:
            self.validated_from_cache += event["num_examples_evaluated"] - (state.total_num_evals - before)
        self._show_if_live()
        self.emit(
            CandidateFound(
                index=index,
                parents=list(event["parent_ids"]),
                iteration=event["iteration"],
                proposal=self.proposals.next_kept() if index else None,
                score=event["average_score"],
                texts=texts,
                front=self._front,
                best=best,
                metric_calls=state.total_num_evals,
                objective_scores=dict(state.prog_candidate_objective_scores[index]) or None,
                recorded={
                    "scores": {str(row_id): score for row_id, score in event["scores_by_val_id"].items()},
                    "metric_calls_before": before,
                    "found": now(),
                    "cost_usd": self.journal.spending.known_cost_usd,
                },
            )
        )
        self._keep()

    def on_steered(self, entry: SteerEntry, number: int, state: GEPAState[Any, int], replayed: bool) -> None:
        """Emit a request of a user that is in force now."""
        scores = state.program_full_scores_val_set
        best = best_of(scores, self.dropped)
        limit = entry.action.max_metric_calls if isinstance(entry.action, SetBudget) and not replayed else None
        if isinstance(entry.action, Drop):
            index = entry.action.candidate
            self._keep()
            if scores[best] < scores[index] or best > index:
                self._best = dict(state.program_candidates[best])
            self._front = sorted(set().union(*state.get_pareto_front_mapping().values()))
        self._show_if_live()
        self.emit(
            Steered(
                action=entry.action.kind,
                text=described(entry.action),
                author=entry.author,
                created=entry.created,
                number=number,
                best=best,
                front=self._front,
                max_metric_calls=limit,
                recorded={"dropped": entry.action.candidate} if isinstance(entry.action, Drop) else {},
            )
        )

    def on_budget_updated(self, event: BudgetUpdatedEvent) -> None:
        """Emit the metric calls that GEPA counted."""
        self.emit(Budget(metric_calls=event["metric_calls_used"]))

    def on_candidate_rejected(self, event: CandidateRejectedEvent) -> None:
        """Emit a proposal that was not better on its minibatch."""
        found = self.proposals.next_rejected()
        fields: dict[str, Any] = {"reason": event["reason"]}
        if found is not None:
            fields |= {name: getattr(found, name) for name in ("proposal", "candidate", "unchanged")}
            fields |= {"parents": list(found.made.parent_program_ids), **self.rejecting(found.made)}
        scores = {name: event[name] for name in ("iteration", "old_score", "new_score")}
        self.emit(Rejected(**scores, **fields))

    def on_merge_rejected(self, event: MergeRejectedEvent) -> None:
        """Emit a merge that was worse than a parent; GEPA gives its scores in the reason only."""
        self.emit(Rejected(iteration=event["iteration"], parents=list(event["parent_ids"]), reason=event["reason"]))

    def on_reflective_dataset_built(self, event: ReflectiveDatasetBuiltEvent) -> None:
        """Emit how much of the records the prompts leave out."""
        candidate = self._texts[event["candidate_idx"]]
        texts = {**added_to(candidate), **candidate}
        for name, records in event["dataset"].items():
            if self.fitted is None or name in CODE_COMPONENTS or name not in texts:
                continue
            found = self.fitted(texts, event["dataset"], name)
            if found.setting is None:
                continue
            cut = RecordsCut(
                iteration=event["iteration"],
                component=name,
                records=len(records),
                shortened=found.shortened,
                left_out=found.left_out,
                tokens=found.tokens,
                setting=found.setting,
            )
            self.emit(cut)

    def on_proposal_end(self, _event: ProposalEndEvent | MergeAttemptedEvent) -> None:
        """Note that the iteration proposed texts or a merge."""
        self._proposed = True

    on_merge_attempted = on_proposal_end

    def on_evaluation_skipped(self, event: EvaluationSkippedEvent) -> None:
        """Note why a minibatch was not reflected on."""
        self._perfect = event["reason"] == PERFECT
        skipped = event["reason"].replace("_", " ")
        self._skipped = "all scores of its minibatch are perfect" if self._perfect else skipped

    def on_iteration_end(self, event: IterationEndEvent) -> None:
        """Emit an iteration without a proposal; GEPA ends an interrupted iteration in the same way."""
        if not self._proposed and not isinstance(sys.exception(), Interrupted):
            dropped, refused = self.proposals.dropped, self.proposals.refused
            empty = not (self._skipped or dropped or refused)
            without = "its change of code was rejected" if refused else "no new text"
            reason = self._skipped or (f"no usable text: {', '.join(dropped)}" if dropped else without)
            self.emit(NoProposal(iteration=event["iteration"], reason=reason, perfect=self._perfect, empty=empty))

    def _show_withheld(self) -> None:
        """Show what was held back during the replay of the search; called from any thread, between two callbacks."""
        if self._over:
            return
        self._enter("seed" if self._state is None else "optimizing")
        try:
            self._show()
        except OSError as error:  # GEPA would swallow it
            raise stop_for(error, "writing the best candidate") from error

    def _show_if_live(self) -> None:
        if not self.journal.replaying:
            self._show()

    def _show(self) -> None:
        self.on_live()
        if self._best is not None:
            best, self._best = self._best, None
            self.on_best(best)

    def _enter(self, phase: PhaseName) -> None:
        if phase != self._phase:
            self._phase = phase
            self.emit(Phase(phase=phase))

    def _keep(self) -> None:
        if self._state is not None:
            self._complete = GEPAResult.from_state(self._state, seed=self.seed)
