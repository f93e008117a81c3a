"""The mutations tried along a line of commits, and what came of each, for the next ones."""

from dataclasses import dataclass
from typing import Any

from gepa.core.callbacks import MergeAttemptedEvent, ValsetEvaluatedEvent
from gepa.core.state import GEPAState
from gepa.proposer.base import CandidateProposal
from gepa.strategies.acceptance import AcceptanceCriterion
from gepa.strategies.proposal_selection import SelectionStrategy

from gepa_client.journal.answer_entries import CommitGraph, MutationEntry, Rejection
from protocol import Candidate, JsonValue
from protocol.code import commit_of

LONGEST = 20
"""The most changes in a prompt, the last ones."""

LOG_TAIL = 1500
"""Characters of a failed command's last output in a prompt."""


@dataclass
class CodeChange:
    """A requested change. `score`, `parent_score`: means over the minibatch it was tried on.

    `tried`: a candidate with it was evaluated. `kept`: that candidate is in GEPA's pool. `lost`: it was better on its
    minibatch, and dropped by its scores on validation rows.
    """

    entry: MutationEntry
    tried: bool = False
    kept: bool = False
    lost: bool = False
    score: float | None = None
    parent_score: float | None = None

    @property
    def commit(self) -> str | None:
        """The commit it made; None if it was rejected."""
        return self.entry.applied.commit if self.entry.applied is not None else None


class Lineage:
    """Every change of the run, and a GEPA callback that notes their outcomes.

    It depends on GEPA's announcements only, never on clocks or costs, so that a replay repeats it.
    """

    def __init__(self, commits: CommitGraph) -> None:
        self._commits = commits
        self._changes: list[CodeChange] = []
        self._pool: dict[frozenset[tuple[str, str]], int] = {}

    def add(self, entry: MutationEntry) -> None:
        """Add a change that was made or rejected."""
        self._changes.append(CodeChange(entry))

    def evaluated(self, parent: Candidate, proposal: Candidate, parent_score: float, score: float) -> None:
        """Note the mean scores of a candidate and its parent on the same rows."""
        if commit_of(parent) != commit_of(proposal):
            for change in self._of(proposal):
                change.tried, change.parent_score, change.score = True, parent_score, score

    def lost(self, candidate: Candidate) -> None:
        """Note that a candidate was dropped by its scores on validation rows."""
        for change in self._of(candidate):
            change.lost = True

    def on_merge_attempted(self, event: MergeAttemptedEvent) -> None:
        """Note that a merged candidate was evaluated."""
        for change in self._of(event["merged_candidate"]):
            change.tried = True

    def on_valset_evaluated(self, event: ValsetEvaluatedEvent) -> None:
        """Note that a candidate is in the pool."""
        self._pool.setdefault(frozenset(event["candidate"].items()), event["candidate_idx"])
        for change in self._of(event["candidate"]):
            change.tried = change.kept = True

    def index(self, candidate: Candidate) -> int | None:
        """Return the candidate's index in GEPA's pool."""
        return self._pool.get(frozenset(candidate.items()))

    def history(self, candidate: Candidate) -> list[dict[str, JsonValue]]:
        """Return past changes for a coding agent: the contract's `PastMutation`s, oldest first."""
        line = self._commits.ancestry(candidate)
        own = [change for change in self._tried_on(line) if not change.kept or change.commit in line]
        return [_past(change, line) for change in own[-LONGEST:]]

    def as_text(self, candidate: Candidate) -> str:
        """Return past changes as text for a model, with those of other candidates that were tried on this line."""
        line = self._commits.ancestry(candidate)
        entries = [_as_text(change, line) for change in self._tried_on(line)[-LONGEST:]]
        return "\n\n".join(f"{at}. {entry}" for at, entry in enumerate(entries, 1)) or "Nothing was tried yet."

    def _of(self, candidate: Candidate) -> list[CodeChange]:
        commit = commit_of(candidate)
        return [change for change in self._changes if change.commit is not None and change.commit == commit]

    def _tried_on(self, line: set[str]) -> list[CodeChange]:
        """Return the changes tried on commits of the line, without those whose outcome is unknown."""
        on_it = [change for change in self._changes if change.entry.parent in line or change.entry.other in line]
        return [change for change in on_it if change.tried or change.commit is None]


@dataclass
class ScoringSelection:
    """Wraps a selection strategy of GEPA's to note every proposal's scores."""

    selection: SelectionStrategy
    lineage: Lineage

    def select(
        self, proposals: list[CandidateProposal[Any]], state: GEPAState[Any, Any], acceptance: AcceptanceCriterion
    ) -> list[CandidateProposal[Any]]:
        """Return the proposals that the wrapped strategy selects."""
        for proposal in proposals:
            parent = state.program_candidates[proposal.parent_program_ids[0]]
            before, after = proposal.subsample_scores_before, proposal.subsample_scores_after
            if before and after:
                self.lineage.evaluated(parent, proposal.candidate, _mean(before), _mean(after))
        return self.selection.select(proposals, state, acceptance)


def _past(change: CodeChange, line: set[str]) -> dict[str, JsonValue]:
    past: dict[str, JsonValue] = {"request": change.entry.request, "outcome": "not_better"}
    if change.entry.rejected is not None:
        rejected = change.entry.rejected
        return past | {"outcome": "rejected", "stage": rejected.stage, "reason": _reason(rejected)}
    if change.commit in line:
        past["outcome"] = "accepted"
    if change.score is not None:
        past |= {"score": change.score, "parent_score": change.parent_score}
    return past


def _as_text(change: CodeChange, line: set[str]) -> str:
    scores = "" if change.score is None else f" (mean score {change.parent_score:.4g} before, {change.score:.4g} after)"
    if change.entry.rejected is not None:
        outcome = f"rejected at the stage `{change.entry.rejected.stage}`: {_reason(change.entry.rejected)}"
    elif change.commit in line:
        outcome = f"accepted, part of the code above{scores}"
    elif change.kept:
        outcome = f"accepted for another candidate, not part of the code above{scores}"
    elif change.lost:
        outcome = f"better on these rows, worse on others, dropped{scores}"
    else:
        outcome = f"not better, dropped{scores}"
    return f"{change.entry.request}\nOutcome: {outcome}"


def _reason(rejected: Rejection) -> str:
    tail = f"\n{rejected.log_tail[-LOG_TAIL:]}" if rejected.log_tail else ""
    return f"{rejected.reason}{tail}"


def _mean(scores: list[float]) -> float:
    return sum(scores) / len(scores)
