"""GEPA's strategies as users steer them: which parent, which components."""

from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Any

from gepa.proposer.reflective_mutation.base import CandidateSelector, ReflectionComponentSelector
from gepa.strategies.batch_sampler import BatchSampler
from gepa.strategies.component_selector import AllReflectionComponentSelector, RoundRobinReflectionComponentSelector
from gepa.strategies.proposal_sampling import ProposalTask, SamplingStrategy

from gepa_client.steering.active_requests import ActiveRequests
from gepa_client.steering.candidate_pool import PoolWithout, State

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
