"""Merges of candidates whose code evolves: GEPA makes them of components, and git merges their code."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gepa.core.callbacks import EvaluationEndEvent, EvaluationStartEvent, IterationStartEvent
from gepa.core.state import GEPAState
from gepa.proposer import merge as gepa_merge

from gepa_client.evolution.mutations import MutationRequest, MutationRunner
from gepa_client.gepa.adapter import RemoteAdapter
from protocol import Candidate
from protocol.code import ADDED_COMPONENTS, GIT_BRANCH, added_components, added_to, branch_of, commit_of


@contextmanager
def code_counts_as_mergeable() -> Iterator[None]:
    """Have GEPA also merge two candidates that both changed their ancestor's code.

    GEPA takes each component from one of the parents, so it skips parents of which neither kept a component that the
    other changed. Two changes of code would never meet, although git can merge them.
    """
    own = gepa_merge.does_triplet_have_desirable_predictors

    def mergeable(program_candidates: Sequence[Candidate], ancestor: int, id1: int, id2: int) -> bool:
        codes = {program_candidates[index].get(GIT_BRANCH) for index in (ancestor, id1, id2)}
        return len(codes) == 3 or own(program_candidates, ancestor, id1, id2)

    gepa_merge.does_triplet_have_desirable_predictors = mergeable
    try:
        yield
    finally:
        gepa_merge.does_triplet_have_desirable_predictors = own


class CodeMerge:
    """A GEPA callback that recognizes a merged candidate, and merges its parents' code.

    GEPA takes `git_branch` from one of the parents, as it does with every component, and announces the evaluation of
    the merged candidate before it hands over the candidate itself; `complete` then changes it in place. If one parent's
    code descends from the other's, git has nothing to merge and GEPA's choice stands, as it does if the merge is
    rejected, unless it is one of the parents.
    """

    def __init__(self, adapter: RemoteAdapter, mutations: MutationRunner) -> None:
        self._adapter = adapter
        self._mutations = mutations
        self._state: GEPAState[Any, Any] | None = None
        self._pending: tuple[int, int, int] | None = None  # a merge to evaluate: its parents and their ancestor
        self._cache: Any = None

    def on_iteration_start(self, event: IterationStartEvent) -> None:
        """Keep the state, which holds the candidates."""
        self._state = event["state"]
        self._pending = None
        self.on_evaluation_end()  # GEPA announces no end of a failed evaluation

    def on_evaluation_start(self, event: EvaluationStartEvent) -> None:
        """Note a merged candidate: only merges have two parents and no index yet."""
        state = self._state
        if event["candidate_idx"] is not None or len(event["parent_ids"]) != 2 or state is None:
            return
        first, second, ancestor = state.full_program_trace[-1]["merged_entities"]
        if self._unrelated(state.program_candidates[first], state.program_candidates[second]):
            self._pending = (first, second, ancestor)
            # GEPA would look up scores of the candidate before its code is merged
            self._cache, state.evaluation_cache = state.evaluation_cache, None

    def on_evaluation_end(self, _event: EvaluationEndEvent | None = None) -> None:
        """Restore GEPA's cache of scores, if it has one."""
        if self._cache is not None and self._state is not None:
            self._state.evaluation_cache, self._cache = self._cache, None

    def complete(self, candidate: dict[str, str]) -> bool:
        """Merge the code of the candidate that is about to be evaluated, if it is a merged one; changes it in place.

        Return False if the merge was rejected and GEPA's choice is one of the parents.

        Raises:
            Interrupted: there is no answer.
        """
        pending, self._pending = self._pending, None
        if pending is None or self._state is None:
            return True
        pool = self._state.program_candidates
        *parents, ancestor = pending
        chosen, left = sorted(parents, key=lambda index: pool[index][GIT_BRANCH] != candidate[GIT_BRANCH])
        other = pool[left]
        added = _merged(added_to(pool[ancestor]), added_to(pool[chosen]), added_to(other))
        base = {**candidate, ADDED_COMPONENTS: added_components(added)} if added else dict(candidate)
        text = f"Merge the code of candidate {left} ({branch_of(other)}) into that of candidate {chosen}."
        wanted = MutationRequest(base, {"kind": "merge", "other": {**other}}, text, other=other)
        [entry] = self._mutations.make([wanted])
        if isinstance(entry, Exception):
            self._adapter.failures.record("apply_mutation", entry)
        elif entry.applied is not None:
            candidate.update(entry.applied.candidate)
        return candidate not in (pool[chosen], other)

    def _unrelated(self, first: Candidate, second: Candidate) -> bool:
        """Whether neither's code descends from the other's, so that git has something to merge."""
        commits = self._adapter.commits
        return commit_of(first) not in commits.ancestry(second) and commit_of(second) not in commits.ancestry(first)


def _merged(ancestor: dict[str, str], chosen: dict[str, str], other: dict[str, str]) -> dict[str, str]:
    """Return the added texts of both: the chosen one's, but the other's if only that one changed a text."""
    merged = other | chosen
    for name in chosen.keys() & other.keys():
        if chosen[name] == ancestor.get(name):
            merged[name] = other[name]
    return merged
