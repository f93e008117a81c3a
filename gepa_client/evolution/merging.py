"""GEPA's merge of two candidates whose code differs: their code is merged before the merged candidate is evaluated."""

from dataclasses import dataclass
from typing import Any

from gepa.core.callbacks import EvaluationEndEvent, EvaluationStartEvent, IterationStartEvent
from gepa.core.state import GEPAState

from gepa_client.errors import ClientError, Interrupted
from gepa_client.evolution.mutations import Mutations, Wanted
from gepa_client.gepa.adapter import RemoteAdapter
from gepa_client.transport.error_format import summary
from protocol import Candidate
from protocol.code import ADDED_COMPONENTS, GIT_BRANCH, added_components, added_to, branch_of, commit_of
from protocol.errors import RpcError


@dataclass(frozen=True)
class _Due:
    """A merge that GEPA is about to evaluate, and the indices of what is merged."""

    parents: tuple[int, int]
    ancestor: int


class CodeMerge:
    """A GEPA callback that knows when a merged candidate comes, and completes it.

    GEPA takes `git_branch` from one of the parents, as it does with every component, and announces the evaluation of
    the merged candidate before it hands over the candidate itself; `complete` then changes it in place. Where one
    parent's code comes from the other's, git has nothing to merge and GEPA's choice stands, as it does where the merge
    is rejected.
    """

    def __init__(self, adapter: RemoteAdapter, mutations: Mutations) -> None:
        self._adapter = adapter
        self._mutations = mutations
        self._state: GEPAState[Any, Any] | None = None
        self._due: _Due | None = None
        self._cache: Any = None

    def on_iteration_start(self, event: IterationStartEvent) -> None:
        """The state holds the candidates."""
        self._state = event["state"]
        self._due = None
        self._restore_cache()  # an evaluation that failed has no end

    def on_evaluation_start(self, event: EvaluationStartEvent) -> None:
        """A merged candidate is the only one that has two parents before it has a number."""
        state = self._state
        if event["candidate_idx"] is not None or len(event["parent_ids"]) != 2 or state is None:
            return
        first, second, ancestor = state.full_program_trace[-1]["merged_entities"]
        if self._unrelated(state.program_candidates[first], state.program_candidates[second]):
            self._due = _Due((first, second), ancestor)
            # GEPA would look up scores of the candidate as it is before its code is merged
            self._cache, state.evaluation_cache = state.evaluation_cache, None

    def on_evaluation_end(self, _event: EvaluationEndEvent) -> None:
        """GEPA's cache of scores, where it has one, holds again."""
        self._restore_cache()

    def _restore_cache(self) -> None:
        if self._cache is not None and self._state is not None:
            self._state.evaluation_cache, self._cache = self._cache, None

    def complete(self, candidate: dict[str, str]) -> None:
        """Merge the code of the candidate that is about to be evaluated, if it is a merged one; changes it in place.

        Raises:
            Interrupted: nothing came of it.
        """
        due, self._due = self._due, None
        if due is None or self._state is None:
            return
        pool = self._state.program_candidates
        chosen, left = sorted(due.parents, key=lambda index: pool[index][GIT_BRANCH] != candidate[GIT_BRANCH])
        other = pool[left]
        added = _merged(added_to(pool[due.ancestor]), added_to(pool[chosen]), added_to(other))
        base = {**candidate, ADDED_COMPONENTS: added_components(added)} if added else dict(candidate)
        words = f"Merge the code of candidate {left} ({branch_of(other)}) into that of candidate {chosen}."
        wanted = Wanted(base, {"kind": "merge", "other": {**other}}, words, other=other)
        try:
            [entry] = self._adapter.wait_for(self._mutations.make([wanted]))
        except (RpcError, ClientError) as error:
            raise Interrupted("failed", f"apply_mutation: {summary(error)}") from error
        if isinstance(entry, Exception):
            self._adapter.failures.record("apply_mutation", entry)
        elif entry.applied is not None:
            candidate.update(entry.applied.candidate)

    def _unrelated(self, first: Candidate, second: Candidate) -> bool:
        """Whether neither's code comes from the other's, so that git has something to merge."""
        commits = self._adapter.commits
        return commit_of(first) not in commits.line(second) and commit_of(second) not in commits.line(first)


def _merged(ancestor: dict[str, str], chosen: dict[str, str], other: dict[str, str]) -> dict[str, str]:
    """The added texts of both: the chosen one's, but the other's where only that one changed it."""
    merged = other | chosen
    for name in chosen.keys() & other.keys():
        if chosen[name] == ancestor.get(name):
            merged[name] = other[name]
    return merged
