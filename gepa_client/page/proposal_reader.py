"""The proposals of a run as the page gets them: pending ones, and the outcome of each once GEPA has decided."""

from collections.abc import Iterator
from typing import Any

from gepa_client.analysis.proposals import Recorded, RecordedProposals
from gepa_client.journal.requests import SHOWN, digest_of
from gepa_client.journal.run_events import CandidateFound, Event, ProposalMade, Rejected
from gepa_client.page.pool_reader import PoolReader
from gepa_client.page.search_events import Proposal


class ProposalReader:
    """Gets what GEPA decided, in order; returns events. `pool`: gets the digests of proposals too."""

    def __init__(self, pool: PoolReader) -> None:
        self._pool = pool
        self._proposals = RecordedProposals()

    def read(self, event: Event) -> Iterator[Proposal]:
        """Yield the proposals that an event of the run changes."""
        if isinstance(event, Rejected | CandidateFound) and event.proposal is None:
            yield from _merge(event)
        for changed in self._proposals.apply(event):
            if isinstance(event, ProposalMade) and event.texts:
                digest = digest_of({**self._pool.candidates[changed.begun.parent].texts, **event.texts})
                self._pool.proposed[digest[:SHOWN]] = digest
            yield self._shown(changed)

    def pending(self) -> Iterator[Proposal]:
        """Yield the proposals without an outcome."""
        return (self._shown(each) for each in self._proposals.found.values() if each.last is None)

    def unfinished(self, at: int) -> Iterator[Proposal]:
        """Yield the same of a run that is not driven; they may get an outcome if it is resumed."""
        for each in self._proposals.found.values():
            if each.last is None:
                yield self._shown(each, decided=at, outcome="unfinished")

    def _shown(self, one: Recorded, **more: Any) -> Proposal:
        begun, made, rejected = one.begun, one.made, one.decided if isinstance(one.decided, Rejected) else None
        digest = None if one.evaluated is None else one.evaluated.candidate
        if digest is None and one.texts:
            digest = digest_of({**self._pool.candidates[begun.parent].texts, **one.texts})[:SHOWN]
        last = one.last
        fields = {
            "key": f"proposal {one.number}",
            "at": one.number,
            "decided": None if last is None else last.at,
            "iteration": begun.iteration if last is not None else None,
            "parents": [begun.parent],
            "components": begun.components,
            "size": len(begun.rows),
            "before": begun.score if last is not None else None,
            "after": None if one.evaluated is None or last is None else one.evaluated.score,
            "outcome": "pending" if last is None else one.outcome,
            "why": None if last is None else one.why,
            "candidate": one.candidate,
            "digest": digest,
            "unchanged": one.evaluated is not None and one.evaluated.unchanged,
            "merge": False,
            "race": None if rejected is None else rejected.race,
            "mutation": None if made is None else made.mutation,
        }
        return Proposal.model_validate({**fields, "why": one.why, **more} if more else fields)


def _merge(event: Rejected | CandidateFound) -> Iterator[Proposal]:
    """Yield the merge that GEPA kept or rejected; the seed is none."""
    if len(event.parents) < 2:
        return
    at = event.at or 0
    yield Proposal(
        key=f"merge at {at}, {event.iteration}",
        at=at,
        decided=at,
        iteration=event.iteration,
        parents=event.parents,
        components=[],
        size=0,
        before=None,
        after=None,
        outcome="kept" if isinstance(event, CandidateFound) else "rejected",
        why="a merge that was as good as its parents" if isinstance(event, CandidateFound) else event.reason,
        candidate=event.index if isinstance(event, CandidateFound) else None,
        digest=None,
        unchanged=False,
        merge=True,
        race=None,
        mutation=None,
    )
