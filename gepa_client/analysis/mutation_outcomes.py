"""The outcome of each code mutation that a run recorded: made and kept, made and dropped, or rejected."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gepa_client.analysis.ties import best_candidate
from gepa_client.errors import JournalError
from gepa_client.evolution.text_diffs import totals
from gepa_client.journal.answer_entries import CommitGraph, MutationEntry
from gepa_client.journal.entries import MUTATION, SEARCH, CandidateRecord
from gepa_client.journal.history import entries
from gepa_client.journal.store import Store
from protocol import ApplyMutationResult
from protocol.code import code_at


@dataclass(frozen=True)
class MutationOutcome:
    """A mutation and its outcome. `number`: of its entry in the journal, and in its branch `evolve/<run>/<number>`.

    `parents`: the mutations that made the commits it starts from, by number; None for the seed's. `kept`: the
    candidates that run its commit, the one it was made for first. `added`, `removed`: lines.
    """

    number: int
    entry: MutationEntry
    parents: tuple[int | None, ...]
    kept: tuple[CandidateRecord, ...]
    added: int
    removed: int

    @property
    def made(self) -> ApplyMutationResult | None:
        """What was made; None where it was refused."""
        return self.entry.applied

    @property
    def status(self) -> Literal["kept", "dropped", "rejected"]:
        """`kept`: a candidate of the pool runs it. `dropped`: it was made, but not better, or not tried any more."""
        if self.made is None:
            return "rejected"
        return "kept" if self.kept else "dropped"

    @property
    def score(self) -> float | None:
        """The best mean validation score of a candidate that runs it; None where none was kept."""
        return max((kept.score for kept in self.kept), default=None)

    @property
    def why(self) -> str:
        """Its change request's first line."""
        return next((line for line in self.entry.request.splitlines() if line.strip()), "")


@dataclass(frozen=True)
class CodeHistory:
    """The code of a run. `outcomes` in the order GEPA asked; `best`: the best candidate, `seed` the first."""

    outcomes: tuple[MutationOutcome, ...]
    seed: CandidateRecord | None
    best: CandidateRecord | None

    def outcome_of(self, number: int) -> MutationOutcome | None:
        """Return the mutation of this number."""
        return next((outcome for outcome in self.outcomes if outcome.number == number), None)

    def making(self, commit: str | None) -> MutationOutcome | None:
        """Return the mutation that made a commit; None for the seed's."""
        return next(
            (outcome for outcome in self.outcomes if outcome.made is not None and outcome.made.commit == commit), None
        )

    @property
    def best_outcome(self) -> MutationOutcome | None:
        """The mutation that made the best candidate's code; None if it runs the seed's."""
        return self.making(code_at(self.best.texts)[1]) if self.best is not None else None

    def bundles(self, commit: str) -> list[bytes]:
        """Return the bundles that bring a commit to a repository that has the seed's, parents first.

        Raises:
            JournalError: a recorded bundle is not base64.
        """
        commits = CommitGraph()
        for outcome in self.outcomes:
            commits.add(outcome.entry)
        found: list[bytes] = []
        for made, bundle in commits.bundles(commit):
            if bundle is not None:
                try:
                    found.append(base64.b64decode(bundle, validate=True))
                except ValueError as error:
                    raise JournalError(f"the bundle recorded of commit {made[:12]} cannot be read: {error}") from error
        return found


def code_history(store: Store, run_id: str, candidates: Sequence[CandidateRecord]) -> CodeHistory:
    """Return the code mutations of a run, in GEPA's order."""
    recorded = recorded_mutations(store, run_id)
    makers: dict[str, int] = {}
    for number, entry in recorded.items():
        if entry.applied is not None:
            makers.setdefault(entry.applied.commit, number)
    users: dict[str, list[CandidateRecord]] = {}
    for kept in candidates:
        commit = code_at(kept.texts)[1]
        if commit is not None:
            users.setdefault(commit, []).append(kept)
    return CodeHistory(
        tuple(_outcome_of(number, entry, makers, users) for number, entry in recorded.items()),
        seed=candidates[0] if candidates else None,
        best=best_candidate(store, run_id, candidates),
    )


def _outcome_of(
    number: int, entry: MutationEntry, makers: dict[str, int], users: dict[str, list[CandidateRecord]]
) -> MutationOutcome:
    starts = [entry.parent, *([entry.other] if entry.other is not None else [])]
    made = entry.applied
    first = made is not None and makers[made.commit] == number  # the same change may have been made twice
    added, removed = totals(made.diff) if made is not None else (0, 0)
    return MutationOutcome(
        number=number,
        entry=entry,
        parents=tuple(makers.get(commit) for commit in starts),
        kept=tuple(users.get(made.commit, ())) if made is not None and first else (),
        added=added,
        removed=removed,
    )


def recorded_mutations(store: Store, run_id: str) -> dict[int, MutationEntry]:
    """Return every mutation of the run by its number, in the order GEPA asked."""
    return {
        entry.number: MutationEntry.model_validate_json(entry.answer)
        for entry in entries(store, run_id, SEARCH)
        if entry.kind == MUTATION
    }
