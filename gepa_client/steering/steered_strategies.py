"""GEPA's strategies as users steer them: which parent, which components."""

from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Any

from gepa.proposer.reflective_mutation.base import CandidateSelector, ReflectionComponentSelector
from gepa.strategies.batch_sampler import BatchSampler
from gepa.strategies.component_selector import AllReflectionComponentSelector, RoundRobinReflectionComponentSelector
from gepa.strategies.proposal_sampling import ProposalTask, SamplingStrategy

from gepa_client.steering.candidate_pool import PoolWithout, State
from gepa_client.steering.in_force import InForce

COMPONENT_SELECTORS = {"round_robin": RoundRobinReflectionComponentSelector, "all": AllReflectionComponentSelector}
"""GEPA's own, by the names that it takes for them."""


NoParents = Callable[[State, Set[int]], Set[int]]
"""Returns the candidates that are no parents, given those that users dropped."""


@dataclass
class SteeredParents:
    """Selects a candidate that is pinned, else one that is neither dropped nor one of the `no_parents`."""

    selector: CandidateSelector
    in_force: InForce
    no_parents: NoParents

    def select_candidate_idx(self, state: State) -> int:
        """Return the index of a parent."""
        if self.in_force.pinned is not None:
            return self.in_force.pinned
        out = self.in_force.dropped | self.no_parents(state, self.in_force.dropped)
        if not out:
            return self.selector.select_candidate_idx(state)
        pool: Any = PoolWithout(state, out)
        return int(pool.indices[self.selector.select_candidate_idx(pool)])


@dataclass
class SteeredSampling:
    """A sampling strategy of GEPA; a proposal by hand has an iteration of its own, with its parent."""

    sampling: SamplingStrategy[Any, Any]
    in_force: InForce
    no_parents: NoParents

    def sample_tasks(
        self, state: State, candidate_selector: CandidateSelector, batch_sampler: BatchSampler[Any, Any], trainset: Any
    ) -> list[ProposalTask[Any, Any]]:
        """Return the pairs of parent and minibatch of one iteration."""
        if not self.in_force.proposals:
            parents: Any = SteeredParents(candidate_selector, self.in_force, self.no_parents)
            return self.sampling.sample_tasks(state, parents, batch_sampler, trainset)
        proposal = self.in_force.proposals[0]
        self.in_force.begin(proposal)
        rows = batch_sampler.next_minibatch_ids(trainset, state)
        return [ProposalTask(proposal.parent, state.program_candidates[proposal.parent], rows, trainset.fetch(rows))]


@dataclass
class SteeredComponents:
    """A component selector of GEPA; those of a proposal by hand are given."""

    selector: ReflectionComponentSelector
    in_force: InForce

    def __call__(
        self,
        state: State,
        trajectories: list[Any],
        subsample_scores: list[float],
        candidate_idx: int,
        candidate: dict[str, str],
    ) -> list[str]:
        """Return the components that a task changes."""
        if self.in_force.current is not None:
            return list(self.in_force.current.texts)
        return self.selector(state, trajectories, subsample_scores, candidate_idx, candidate)


def steered(
    arguments: dict[str, Any],
    in_force: InForce,
    no_parents: NoParents = lambda _state, _dropped: frozenset(),
) -> dict[str, Any]:
    """Return the arguments of `gepa.optimize` with its strategies steered."""
    named = arguments["module_selector"]
    selector = COMPONENT_SELECTORS[named]() if isinstance(named, str) else named
    return arguments | {
        "sampling_strategy": SteeredSampling(arguments["sampling_strategy"], in_force, no_parents),
        "module_selector": SteeredComponents(selector, in_force),
    }
