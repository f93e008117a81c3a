"""Have proposals raced (`race_blocks` decides which are dropped); choose parents that tie with the best."""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from gepa.core.state import GEPAState
from gepa.proposer.base import CandidateProposal
from gepa.strategies.acceptance import AcceptanceCriterion
from gepa.strategies.proposal_selection import SelectionStrategy

from evolverpc_common.settings.sources import SettingsError
from gepa_client.analysis.ties import best_of, ties_with
from gepa_client.gepa.adapter import RemoteAdapter
from gepa_client.gepa.evaluation_results import Batch
from gepa_client.gepa.hooks import cache_batch, cached_scores
from gepa_client.gepa.rows import SearchRows
from gepa_client.journal.requests import digest_of
from gepa_client.journal.run_events import RacedOut
from gepa_client.selection.race_blocks import BlockRace, RacedProposal, race_order, targets
from gepa_client.settings.run_config import RunConfig
from protocol import Candidate, DiscoverResult


@dataclass
class RacedSelection:
    """A selection strategy of GEPA that races the proposals which another strategy selects; equal texts race once.

    GEPA counts the metric calls of the survivors when it evaluates them on all rows of the search. This class counts
    those of dropped proposals, one for each row that was evaluated. GEPA 0.1.4 evaluates merges on all rows without
    asking a selection strategy, so they do not race.

    `val`: the validation rows of the search. `seed`: of the order of rows. `perfect`: the perfect score. `on_lost`:
    called with each candidate that is dropped. `dropped`: candidates of the pool that a user dropped: no proposal is
    compared with them.
    """

    selection: SelectionStrategy
    adapter: RemoteAdapter
    val: SearchRows
    seed: int
    perfect: float
    on_lost: Callable[[Candidate], None] = lambda _candidate: None
    dropped: Set[int] = frozenset()
    _races: int = field(default=0, init=False)
    _survivors: dict[str, RacedProposal] = field(default_factory=dict, init=False)
    _lost: dict[int, RacedOut] = field(default_factory=dict, init=False)
    """How proposals of the last selection lost, by their `id`."""

    def select(
        self, proposals: list[CandidateProposal[Any]], state: GEPAState[Any, Any], acceptance: AcceptanceCriterion
    ) -> list[CandidateProposal[Any]]:
        """Return the proposals that the other strategy selects and that survive their race.

        Raises: as `RemoteAdapter.evaluate`.
        """
        selected = self.selection.select(proposals, state, acceptance)
        pool = [scores for index, scores in enumerate(state.prog_candidate_val_subscores) if index not in self.dropped]
        raced: dict[str, RacedProposal] = {}
        for proposal in selected:
            if (digest := digest_of(proposal.candidate)) not in raced:
                raced[digest] = self._entered(proposal, pool, state)
        if raced:
            self.adapter.wait_for(self._race(list(raced.values()), pool).run())
        kept = {digest: each for digest, each in raced.items() if each.lost is None}
        lost = {digest: each for digest, each in raced.items() if each.lost is not None}
        for loser in lost.values():
            self._count(loser, state)
            self.on_lost(loser.candidate)
        survivors = [each for each in selected if digest_of(each.candidate) in kept]
        self._survivors = {digest: each for digest, each in kept.items() if each.evaluated}
        raced_out = ((each, lost.get(digest_of(each.candidate))) for each in selected)
        self._lost = {id(each): self._outcome(loser) for each, loser in raced_out if loser is not None}
        return survivors

    def lost_by(self, proposal: CandidateProposal[Any]) -> RacedOut | None:
        """Return how a proposal of the last selection lost its race; None if it did not."""
        return self._lost.get(id(proposal))

    def rejecting(self, proposal: CandidateProposal[Any]) -> dict[str, Any]:
        """Return the fields of `Rejected` by which a proposal that lost its race differs from others."""
        lost = self.lost_by(proposal)
        return {} if lost is None else lost.rejecting()

    def take_survivors(self) -> dict[str, Batch]:
        """Return the results of each survivor, by the digest of its texts; once after each selection.

        They are those on the rows that GEPA's cache lacks, in the order of the rows.
        """
        survivors, self._survivors = self._survivors, {}
        return {digest: self._batch(each, sorted(each.evaluated)) for digest, each in survivors.items()}

    def _race(self, proposals: Sequence[RacedProposal], pool: Sequence[Mapping[int, float]]) -> BlockRace:
        order = race_order(self.val.all_ids(), self.seed, self._races)
        self._races += 1
        highest = max(self.perfect, *(score for scores in pool for score in scores.values()))
        rows = dict(zip(order, self.val.fetch(order), strict=True))
        return BlockRace(self.adapter, proposals, rows, highest)

    def _entered(
        self, proposal: CandidateProposal[Any], pool: Sequence[Mapping[int, float]], state: GEPAState[Any, Any]
    ) -> RacedProposal:
        known = cached_scores(state, proposal.candidate, self.val.all_ids())
        parent = state.prog_candidate_val_subscores[proposal.parent_program_ids[0]]
        return RacedProposal(proposal.candidate, targets(pool, parent), known)

    def _count(self, loser: RacedProposal, state: GEPAState[Any, Any]) -> None:
        state.increment_evals(len(loser.evaluated))
        if loser.evaluated:
            cache_batch(state, loser.candidate, loser.evaluated, self._batch(loser, loser.evaluated))

    def _batch(self, proposal: RacedProposal, row_ids: Sequence[int]) -> Batch:
        return self.adapter.batches.build(self.val.fetch(row_ids), [proposal.results[row_id] for row_id in row_ids])

    def _outcome(self, loser: RacedProposal) -> RacedOut:
        assert loser.lost is not None, "it was dropped"  # noqa: S101
        return RacedOut(
            **{name: loser.lost[name] for name in ("compared", "mean")},
            calls=len(loser.evaluated),
            saved=len(self.val) - len(loser.known) - len(loser.evaluated),
            rows=len(self.val),
        )


def races(config: RunConfig, discovery: DiscoverResult) -> bool:
    """Return whether proposals race on validation rows.

    Raises:
        SettingsError: they would, but the program evaluates whole batches.
    """
    if config.races and discovery.limits.whole_batches:
        raise SettingsError(
            "`validation` is race, but the program evaluates whole batches (it is a GEPAAdapter), and a race evaluates "
            "single rows: leave `validation` out, or serve functions that evaluate one example"
        )
    return config.races


class RacingAdapter:
    """An adapter for `gepa.optimize` that does not evaluate the survivors of a race again."""

    def __init__(self, adapter: Any, race: RacedSelection) -> None:
        self._adapter = adapter
        self._race = race

    def batch_evaluate(
        self, items: Sequence[tuple[Candidate, Sequence[Any]]], capture_traces: bool | None = None
    ) -> list[Batch]:
        """Return the results that a race has of its survivors, in the first call after it; else evaluate.

        Raises: as the adapter.
        """
        survivors = self._race.take_survivors()
        if survivors:
            return [survivors[digest_of(candidate)] for candidate, _ in items]
        evaluated: list[Batch] = self._adapter.batch_evaluate(items, capture_traces)
        return evaluated

    def __getattr__(self, name: str) -> Any:
        """Return what the adapter has."""
        return getattr(self._adapter, name)


def behind_best(state: GEPAState[Any, Any], dropped: Set[int]) -> set[int]:
    """Return the candidates that are no parents: the best one leads them by more than one standard error.

    GEPA's Pareto selection draws each candidate that is not dominated as often as it is among the best on a row. If
    scores are 0 or 1, most candidates are among the best on most rows, so that most parents would be far behind the
    best one. If the fronts have objectives, the candidates with the highest mean of an objective remain parents.

    `dropped`: candidates that users dropped; none of them is compared or returned.
    """
    scores = state.prog_candidate_val_subscores
    best = best_of(state.program_full_scores_val_set, dropped)
    kept = {best, *dropped}
    if state.frontier_type != "instance":
        kept.update(*state.program_at_pareto_front_objectives.values())
    return {index for index, each in enumerate(scores) if index not in kept and not ties_with(scores[best], each)}
