"""The requests of users that change the search at present, and GEPA's strategies as they steer them.

GEPA's thread alone uses them.
"""

from collections import deque
from collections.abc import Callable, Set
from dataclasses import dataclass, field
from typing import Any

from gepa.proposer.reflective_mutation.base import CandidateSelector, ReflectionComponentSelector
from gepa.strategies.batch_sampler import BatchSampler
from gepa.strategies.component_selector import AllReflectionComponentSelector, RoundRobinReflectionComponentSelector
from gepa.strategies.proposal_sampling import ProposalTask, SamplingStrategy

from gepa_client.gepa.reflection_strategies import TextProposal
from gepa_client.journal.entries import PROPOSAL
from gepa_client.journal.journal import Journal
from gepa_client.journal.requests import request_key
from gepa_client.journal.steer_entries import ClearHints, Drop, Hint, Pin, Propose, SteerEntry, Unpin, Withdraw
from gepa_client.steering.candidate_pool import PoolWithout, State, leave_fronts


@dataclass
class ProposalByHand:
    """Texts that a user gave for some components of a parent. `tries`: iterations that began with it."""

    request: str
    author: str
    parent: int
    texts: dict[str, str]
    tries: int = 0


@dataclass
class _ActiveHint:
    text: str
    left: int | None


@dataclass
class ActiveRequests:
    """`proposals`: those that are not evaluated yet; `current`: the one that this iteration evaluates."""

    pinned: int | None = None
    dropped: set[int] = field(default_factory=set)
    proposals: deque[ProposalByHand] = field(default_factory=deque)
    current: ProposalByHand | None = None
    _hints: list[_ActiveHint] = field(default_factory=list)

    def hints(self) -> tuple[str, ...]:
        """Return the texts that prompts of reflection show now."""
        return tuple(hint.text for hint in self._hints)

    def count_proposals(self, proposals: int) -> None:
        """Count down the hints that hold for a number of proposals."""
        for hint in self._hints:
            hint.left = None if hint.left is None else hint.left - proposals
        self._hints = [hint for hint in self._hints if hint.left is None or hint.left > 0]

    def begin(self, proposal: ProposalByHand) -> None:
        """Note that this iteration evaluates a proposal by hand."""
        self.current = proposal
        proposal.tries += 1

    def propose(self, journal: Journal) -> TextProposal:
        """Return the texts that this iteration evaluates, as an answer of the journal like those of reflection.

        Raises:
            Interrupted: as `Journal.ask`.
        """
        found = self.proposals.popleft()
        self.current = None
        about = f"propose the texts of request {found.request} by {found.author}"
        [asked] = journal.ask([request_key(PROPOSAL, about, found.texts)])
        if asked.entry is None:
            with journal.executing([asked]):
                journal.record((asked, dict(found.texts)))
                journal.settle()
        return TextProposal(dict(found.texts), by_hand=found.author, request=found.request)

    def apply(self, entry: SteerEntry, state: State) -> None:
        """Apply a request; limits of the run are not part of it."""
        match entry.action:
            case Propose(texts=texts, parent=parent):
                self.proposals.append(ProposalByHand(entry.id, entry.author, parent or 0, dict(texts)))
            case Withdraw(request=request):
                self.proposals = deque(each for each in self.proposals if each.request != request)
            case Pin(candidate=index):
                self.pinned = index
            case Unpin():
                self.pinned = None
            case Drop(candidate=index):
                self.dropped.add(index)
                leave_fronts(state, index, self.dropped)
            case Hint(text=text, proposals=proposals):
                self._hints.append(_ActiveHint(text, proposals))
            case ClearHints():
                self._hints = []


COMPONENT_SELECTORS = {"round_robin": RoundRobinReflectionComponentSelector, "all": AllReflectionComponentSelector}
"""GEPA's own, by the names that it takes for them."""


NoParents = Callable[[State, Set[int]], Set[int]]
"""Returns the candidates that are no parents, given those that users dropped."""


@dataclass
class SteeredParents:
    """Selects a candidate that is pinned, else one that is neither dropped nor one of the `no_parents`."""

    selector: CandidateSelector
    active_requests: ActiveRequests
    no_parents: NoParents

    def select_candidate_idx(self, state: State) -> int:
        """Return the index of a parent."""
        if self.active_requests.pinned is not None:
            return self.active_requests.pinned
        out = self.active_requests.dropped | self.no_parents(state, self.active_requests.dropped)
        if not out:
            return self.selector.select_candidate_idx(state)
        pool: Any = PoolWithout(state, out)
        return int(pool.indices[self.selector.select_candidate_idx(pool)])


@dataclass
class SteeredSampling:
    """A sampling strategy of GEPA; a proposal by hand has an iteration of its own, with its parent."""

    sampling: SamplingStrategy[Any, Any]
    active_requests: ActiveRequests
    no_parents: NoParents

    def sample_tasks(
        self, state: State, candidate_selector: CandidateSelector, batch_sampler: BatchSampler[Any, Any], trainset: Any
    ) -> list[ProposalTask[Any, Any]]:
        """Return the pairs of parent and minibatch of one iteration."""
        if not self.active_requests.proposals:
            parents: Any = SteeredParents(candidate_selector, self.active_requests, self.no_parents)
            return self.sampling.sample_tasks(state, parents, batch_sampler, trainset)
        proposal = self.active_requests.proposals[0]
        self.active_requests.begin(proposal)
        rows = batch_sampler.next_minibatch_ids(trainset, state)
        return [ProposalTask(proposal.parent, state.program_candidates[proposal.parent], rows, trainset.fetch(rows))]


@dataclass
class SteeredComponents:
    """A component selector of GEPA; those of a proposal by hand are given."""

    selector: ReflectionComponentSelector
    active_requests: ActiveRequests

    def __call__(
        self,
        state: State,
        trajectories: list[Any],
        subsample_scores: list[float],
        candidate_idx: int,
        candidate: dict[str, str],
    ) -> list[str]:
        """Return the components that a task changes."""
        if self.active_requests.current is not None:
            return list(self.active_requests.current.texts)
        return self.selector(state, trajectories, subsample_scores, candidate_idx, candidate)


def steered(
    arguments: dict[str, Any],
    active_requests: ActiveRequests,
    no_parents: NoParents = lambda _state, _dropped: frozenset(),
) -> dict[str, Any]:
    """Return the arguments of `gepa.optimize` with its strategies steered."""
    named = arguments["module_selector"]
    selector = COMPONENT_SELECTORS[named]() if isinstance(named, str) else named
    return arguments | {
        "sampling_strategy": SteeredSampling(arguments["sampling_strategy"], active_requests, no_parents),
        "module_selector": SteeredComponents(selector, active_requests),
    }
