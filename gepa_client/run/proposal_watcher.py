"""Follow each proposal of an iteration through GEPA: its records, its texts, its results, its outcome."""

from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from gepa.core.callbacks import EvaluationEndEvent, IterationStartEvent, ReflectiveDatasetBuiltEvent
from gepa.core.state import GEPAState
from gepa.proposer.base import CandidateProposal
from gepa.proposer.reflective_mutation.reflection_lm import ReflectionJob
from gepa.strategies.acceptance import AcceptanceCriterion
from gepa.strategies.proposal_selection import SelectionStrategy

from gepa_client.gepa.adapter import RemoteAdapter
from gepa_client.gepa.reflection_strategies import ReflectionStrategy, TextProposal
from gepa_client.journal.requests import SHOWN, digest_of
from gepa_client.journal.run_events import Emit, ProposalBegun, ProposalEvaluated, ProposalMade, UnusableAnswer
from gepa_client.steering.steering import ActiveRequests

Proposal = CandidateProposal[Any]
State = GEPAState[Any, Any]


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
        self._begun, self._evaluated, self.dropped = [], [], {}
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
        """Return one proposal per job, in order."""
        hints = self.active_requests.hints()
        if self.active_requests.current is not None:
            found = [self.active_requests.propose(self.adapter.journal)]
        else:
            found = [proposal for proposal, _ in self.reflection.reflect_many(jobs)]
            self.active_requests.count_proposals(len(jobs))
        self._made(jobs, found, hints)
        return found

    def select(self, proposals: list[Proposal], state: State, acceptance: AcceptanceCriterion) -> list[Proposal]:
        """Return the proposals that the other strategy selects. Raises: as that."""
        selected = self.selection.select(proposals, state, acceptance)
        self._selected(proposals, selected)
        return selected

    def _made(self, jobs: Sequence[ReflectionJob], proposals: Sequence[TextProposal], hints: Sequence[str]) -> None:
        """Emit the proposals of the iteration, after the answers that were not used for them."""
        for number, (parent, _, _), made in zip(self._begun, jobs, proposals, strict=True):
            for found in made.unusable:
                if found.dropped:
                    self.dropped[found.then or found.reason] = None
                fields = {**asdict(found), "dropped": found.dropped}
                self.emit(UnusableAnswer(iteration=self._iteration, proposal=number, **fields))
            if made.new_texts:
                texts = {**parent, **made.new_texts}
                self._children.append((number, digest_of(texts)[:SHOWN], texts == parent))
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

    def _selected(self, proposals: Sequence[Proposal], selected: Sequence[Proposal]) -> None:
        """Note which proposals GEPA will reject, and which it will keep, of equal texts the first, in its order."""
        known = {id(one): Outcome(*of, one) for one, of in zip(proposals, self._evaluated, strict=True)}
        texts: dict[str, Outcome] = {}
        for one in selected:
            texts.setdefault(digest_of(one.candidate), known[id(one)])
        self._kept = deque(texts.values())
        kept = {each.proposal for each in self._kept}
        self._rejected = deque(each for each in known.values() if each.proposal not in kept)
