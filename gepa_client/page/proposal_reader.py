"""The proposals of a run as they are made: where each begins, and its outcome once GEPA has decided."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gepa_client.analysis.proposals import DATASET, JOB, WINDOWS, AnalyzedProposal, ProposalHistory
from gepa_client.journal.entries import (
    COMPLETION,
    EVALUATE,
    MUTATION,
    PROPOSAL,
    REFLECTIVE_DATASET,
    CandidateRecord,
    Entry,
    StoredRun,
)
from gepa_client.journal.history import RecordedRow
from gepa_client.journal.requests import SHOWN, digest_of, evaluated_of
from gepa_client.journal.run_events import CandidateFound, NoProposal, Rejected, StepFailed
from gepa_client.journal.store import Store
from gepa_client.page.search_events import Proposal, ProposalOutcome

AROUND = 64
"""Numbers beside the evaluations of a minibatch that are read with them."""

EVALUATED_AT_ONCE = 16
"""Proposals that are evaluated at the same time, at most."""


@dataclass(frozen=True)
class PendingProposal:
    """A proposal without an outcome. `number`: of its reflective dataset. `start`: where its minibatches may begin.

    `evaluated`: the beginning of the digest of the candidate that was evaluated last before it, its parent unless there
    are several proposals.
    """

    number: int
    size: int
    components: list[str]
    start: int
    evaluated: str | None


class ProposalReader:
    """Gets the entries of the search in their order, then decisions of GEPA; returns events.

    `candidates`: the pool, which grows.
    """

    def __init__(
        self, store: Store, run: StoredRun, candidates: Sequence[CandidateRecord], train: Sequence[RecordedRow]
    ) -> None:
        self._store, self._run, self._candidates, self._train = store, run, candidates, train
        self._found: list[PendingProposal] = []
        self.pending: list[PendingProposal] = []
        self._evaluations = 0  # where the evaluations before the next dataset begin
        self._evaluated: str | None = None
        self._after_dataset = False
        self._digests: list[str] = []
        self._group: list[int] = []
        self.answered: dict[int, int] = {}
        """The proposals that answers of reflection belong to: the numbers of both."""
        self.made: dict[int, str] = {}
        """Digests of the texts of proposals that were pending when `note_made` read them, by number."""
        self._noted = 0

    def read(self, entry: Entry) -> Proposal | None:
        """Note an entry, whose answer is not needed; return the proposal that begins with it."""
        if entry.kind == EVALUATE:
            if self._after_dataset:
                self._evaluations, self._after_dataset, self._group = entry.number, False, []
            about = evaluated_of(entry.about)
            self._evaluated = about.candidate if about is not None else None
        elif entry.kind == REFLECTIVE_DATASET and (read := DATASET.fullmatch(entry.about)) is not None:
            size = int(read[1])
            start = max(self._evaluations, entry.number - WINDOWS * size - AROUND)
            found = PendingProposal(entry.number, size, read[2].split(", "), start, self._evaluated)
            self._after_dataset = True
            self._group.append(entry.number)
            self._found.append(found)
            self.pending.append(found)
            return self._event(found, "pending", None)
        elif entry.kind in (COMPLETION, PROPOSAL) and (at := JOB.fullmatch(entry.about)) is not None:
            for number in self._group[int(at[1]) : int(at[1]) + 1]:
                self.answered[entry.number] = number
        elif entry.kind == MUTATION and len(self._group) == 1:
            self.answered[entry.number] = self._group[0]
        return None

    def restart(self) -> None:
        """Expect GEPA's decisions from the first one on: another replay repeats those that are known."""
        self.pending = list(self._found)

    def note_made(self) -> Iterator[Proposal]:
        """Yield the last pending proposals whose texts are known now: what is evaluated goes by their digests."""
        if self._noted == len(self.answered):
            return
        self._noted = len(self.answered)
        pending = {each.number: each for each in self.pending}
        for number, texts in self.children().items():
            if number in pending and number not in self.made:  # the store may have newer ones, which are read later
                self.made[number] = digest_of(texts)
                yield self._event(pending[number], "pending", None, digest=self.made[number][:SHOWN])

    def children(self) -> dict[int, dict[str, str]]:
        """Return the texts of the last pending proposals that have been answered, by number."""
        last = self.pending[-EVALUATED_AT_ONCE:]
        return self._history(last, None).children() if last else {}

    def rejected(self, at: int, event: Rejected) -> Iterator[Proposal]:
        """Yield the proposal that GEPA rejected at this place."""
        before = self._before(at)
        children = self._history(before, at).children() if before else {}
        digests = {number: digest_of(texts)[:SHOWN] for number, texts in children.items()}
        outcome: ProposalOutcome = "rejected" if event.race is None else "raced_out"
        same = [each for each in before if event.candidate is not None and digests.get(each.number) == event.candidate]
        merge = event.candidate is None and event.old_score is None
        if not same and not merge:
            same = [each for each in before if each.number not in digests] or before
        if not same:
            yield Proposal(
                key=f"{'merge' if merge else 'proposal'} at {at}, {event.iteration}, {event.new_score}",
                at=at,
                decided=at,
                iteration=event.iteration,
                parents=[],
                components=[],
                size=0,
                before=event.old_score,
                after=event.new_score,
                outcome=outcome,
                why=event.reason,
                candidate=None,
                digest=event.candidate,
                unchanged=event.unchanged,
                merge=merge,
                race=event.race,
                mutation=None,
            )
            return
        yield from self._skipped(before, same[0], at, event.iteration)
        [found] = self._history([same[0]], at).proposals([same[0].number], texts=False)
        self.pending.remove(same[0])
        yield self._event(
            same[0],
            outcome,
            at,
            iteration=event.iteration,
            before=event.old_score,
            after=event.new_score,
            why=event.reason,
            digest=event.candidate or digests.get(same[0].number),
            unchanged=event.unchanged,
            race=event.race,
            **_known(found),
        )

    def kept(self, at: int, event: CandidateFound) -> Iterator[Proposal]:
        """Yield the proposal that became this candidate; a merge, too."""
        digest = digest_of(event.texts)[:SHOWN]
        if len(event.parents) != 1:
            if event.parents:
                yield Proposal(
                    key=f"merge at {at}, candidate {event.index}",
                    at=at,
                    decided=at,
                    iteration=event.iteration,
                    parents=event.parents,
                    components=[],
                    size=0,
                    before=None,
                    after=None,
                    outcome="kept",
                    why="a merge that was as good as its parents",
                    candidate=event.index,
                    digest=digest,
                    unchanged=False,
                    merge=True,
                    race=None,
                    mutation=None,
                )
            return
        before = self._before(at)
        found = self._history(before, at).proposals([each.number for each in before], texts=False) if before else []
        made = [each for each in found if each.candidate == event.index]
        if not made:
            return
        one = next(each for each in before if each.number == made[-1].number)
        yield from self._skipped(before, one, at, event.iteration)
        self.pending.remove(one)
        yield self._event(
            one,
            "kept",
            at,
            iteration=event.iteration,
            before=made[-1].before,
            after=made[-1].after,
            why=made[-1].why,
            candidate=event.index,
            digest=digest,
            **_known(made[-1]),
        )

    def without_proposal(self, at: int, event: NoProposal | StepFailed) -> Iterator[Proposal]:
        """Yield the proposals of an iteration that ended without anything to evaluate."""
        why = event.reason if isinstance(event, NoProposal) else f"{event.step} failed: {event.message}"
        for each in self._before(at):
            self.pending.remove(each)
            yield self._event(each, "empty", at, iteration=event.iteration, why=why)

    def unfinished(self, at: int, *, paused: bool) -> Iterator[Proposal]:
        """Yield the proposals without an outcome of a run that is not driven; they may get one if it is resumed."""
        why = "the run was paused before it was decided" if paused else "the run ended before it was decided"
        for each in self.pending:
            digest = self.made.get(each.number, "")[:SHOWN] or None
            yield self._event(each, "unfinished", at, why=why, digest=digest)

    def undecided(self, at: int, *, driven: bool) -> Iterator[Proposal]:
        """Yield the proposals before `at` with the outcomes that their results show: GEPA's decisions are not known.

        `driven`: those of the last minibatches may be evaluated now, and are left out.
        """
        last = self.pending[-1].start if driven and self.pending else at
        before = [each for each in self._before(at) if each.number < last]
        found = self._history(before, at).proposals([each.number for each in before], texts=False) if before else []
        for each, analyzed in zip(before, found, strict=True):
            self.pending.remove(each)
            yield self._event(
                each,
                analyzed.outcome,
                at,
                before=analyzed.before,
                after=analyzed.after,
                why=analyzed.why,
                candidate=analyzed.candidate,
                **_known(analyzed),
            )

    def _skipped(
        self, before: Sequence[PendingProposal], decided: PendingProposal, at: int, iteration: int
    ) -> Iterator[Proposal]:
        """Yield the proposals of earlier minibatches than the decided one: they had no new text."""
        for each in before:
            if each.start < decided.start and each.number < decided.start:
                self.pending.remove(each)
                yield self._event(each, "empty", at, iteration=iteration, why="reflection gave no new text")

    def _before(self, at: int) -> list[PendingProposal]:
        return [each for each in self.pending if each.number < at]

    def _history(self, of: Sequence[PendingProposal], until: int | None) -> ProposalHistory:
        start = min(each.start for each in of)
        return ProposalHistory(self._store, self._run, list(self._candidates), until, start=start, train=self._train)

    def _event(
        self,
        pending: PendingProposal,
        outcome: ProposalOutcome,
        decided: int | None,
        **more: object,
    ) -> Proposal:
        for kept in self._candidates[len(self._digests) :]:
            self._digests.append(digest_of(kept.texts)[:SHOWN])
        parents = [index for index, digest in enumerate(self._digests) if digest == pending.evaluated]
        values: dict[str, object] = {
            "iteration": None,
            "parents": parents[:1],
            "components": pending.components,
            "size": pending.size,
            "before": None,
            "after": None,
            "why": None,
            "candidate": None,
            "digest": None,
            "unchanged": False,
            "race": None,
            "mutation": None,
        }
        return Proposal.model_validate(
            {
                "key": f"proposal {pending.number}",
                "at": pending.number,
                "decided": decided,
                "outcome": outcome,
                "merge": False,
                **values,
                **more,
            }
        )


def _known(found: AnalyzedProposal) -> dict[str, object]:
    """Return what the analysis of a proposal adds to GEPA's decision."""
    parents = {} if found.parent is None else {"parents": [found.parent]}
    return {**parents, "mutation": found.mutation}
