"""Have proposals raced: evaluated on blocks of validation rows, and dropped as soon as their scores decide.

A block starts before the blocks ahead of it have ended, so that slow examples leave no slot of the fleet idle. Yet each
decision depends on fixed rows, never on which examples happen to have ended: the same run makes the same decisions,
also after an interruption. A decision is recorded with its numbers and the rows of its block, and a replay reads it.
`race_rule` decides which proposals are dropped.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from typing import Any

from gepa.core.state import GEPAState
from gepa.proposer.base import CandidateProposal
from gepa.strategies.acceptance import AcceptanceCriterion
from gepa.strategies.proposal_selection import SelectionStrategy

from gepa_client.analysis.ties import best_of, ties_with
from gepa_client.errors import Interrupted
from gepa_client.gepa.adapter import RemoteAdapter
from gepa_client.gepa.evaluation_results import Batch
from gepa_client.gepa.hooks import cache_batch, cached_scores
from gepa_client.gepa.rows import AnyRow, RowLoader
from gepa_client.journal.entries import RACE
from gepa_client.journal.requests import SHOWN, digest_of, request_key
from gepa_client.journal.run_events import RacedOut
from gepa_client.selection.race_rule import drop_decision, race_order, rows_ahead, rows_begun, targets
from protocol import Candidate


@dataclass
class RacedProposal:
    """A proposal in a race; scores and results are by GEPA's row id.

    `targets`: what it is compared with. `known`: scores that GEPA's cache has. `evaluated`: the rows that the race had
    evaluated, in their order. `scores`: those compared so far, in the order of the race. `lost`: its part of the
    decision that dropped it, None until then.
    """

    candidate: Candidate
    targets: Mapping[int, float]
    known: Mapping[int, float]
    evaluated: list[int] = field(default_factory=list)
    results: dict[int, dict[str, Any]] = field(default_factory=dict)
    scores: list[float] = field(default_factory=list)
    lost: dict[str, Any] | None = None


@dataclass
class BlockRace:
    """A race of several proposals until each is dropped or evaluated on all rows.

    `rows`: the validation rows of the search by GEPA's id, in the order of the race. `highest`: what no score should
    exceed.
    """

    adapter: RemoteAdapter
    proposals: Sequence[RacedProposal]
    rows: Mapping[int, AnyRow]
    highest: float

    def __post_init__(self) -> None:
        self._begun: list[int] = []
        self._slots = 0  # of the fleet when the race began
        self._tasks: list[asyncio.Task[None]] = []
        self._failures: list[tuple[int, Exception | Interrupted]] = []
        self._one_ended = asyncio.Event()
        self._digests = [digest_of(each.candidate) for each in self.proposals]

    async def run(self) -> None:
        """Race, on the adapter's event loop; everything in flight has ended when it returns or raises.

        Raises: as `RemoteAdapter.evaluate`.
        """
        try:
            await self._decide_and_evaluate()
        except (Exception, Interrupted) as error:  # noqa: BLE001 - raised below, when the examples have ended
            self._failures.append((len(self._tasks), error))
        except asyncio.CancelledError:
            for task in self._tasks:
                task.cancel()
            raise
        finally:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        self._raise_failure()
        await self.adapter.journal.settled()

    async def _decide_and_evaluate(self) -> None:
        while self._racing and len(self._begun) < len(self.rows):
            decision = await self._decision()
            self._slots = decision["slots"]
            for found in decision["proposals"]:
                if found["drops"]:
                    self.proposals[found["proposal"]].lost = found
            self._begun += decision["rows"]
            for row_id in decision["rows"]:
                for proposal in self._racing.values():
                    if row_id not in proposal.known:
                        self._start(proposal, row_id)

    @property
    def _racing(self) -> dict[int, RacedProposal]:
        return {at: each for at, each in enumerate(self.proposals) if each.lost is None}

    # --- decisions ---------------------------------------------------------------------------------------------------

    async def _decision(self) -> dict[str, Any]:
        """Return the recorded decision, or make one when the rows that it compares have ended.

        Raises: the failure of an example, unless the decision was recorded before it.
        """
        journal, begun = self.adapter.journal, len(self._begun)
        about = f"decide on {len(self._digests)} proposals with {begun} of {len(self.rows)} validation rows begun"
        [request] = journal.ask([request_key(RACE, about, self._digests, begun)])
        if request.recorded:
            recorded: Any = request.answer
            return dict(recorded)
        await asyncio.sleep(0)  # a failure that is recorded is raised now, as it was in the recorded run
        self._raise_failure()
        compared = self._begun[: max(0, begun - rows_ahead(len(self._racing), self._slots))]
        with journal.executing([request]):
            for proposal in self._racing.values():
                for row_id in compared[len(proposal.scores) :]:
                    while (score := self._score(proposal, row_id)) is None:
                        self._one_ended.clear()
                        await self._one_ended.wait()
                        self._raise_failure()
                    proposal.scores.append(score)
            [made] = journal.record((request, self._made_decision(compared)))
        decision: Any = made
        return dict(decision)

    def _made_decision(self, compared: Sequence[int]) -> dict[str, Any]:
        racing = self._racing
        found = [
            drop_decision(each.scores, [each.targets[row_id] for row_id in self.rows], self.highest)
            for each in racing.values()
            if compared
        ]
        proposals = [
            {"proposal": at, "candidate": self._digests[at][:SHOWN], "compared": len(compared), **asdict(one)}
            for at, one in zip(racing, found, strict=False)
        ]
        slots = self._slots or self.adapter.slots
        left = len(racing) - sum(one.drops for one in found)
        begun = set(self._begun)
        rows = [row_id for row_id in self.rows if row_id not in begun]
        block = rows[: max(0, rows_begun(len(compared), left, slots) - len(self._begun))]
        return {"validation_rows": len(self.rows), "slots": slots, "proposals": proposals, "rows": block}

    def _score(self, proposal: RacedProposal, row_id: int) -> float | None:
        """Return the score of a row, None if it has not ended."""
        result = proposal.results.get(row_id)
        return proposal.known.get(row_id) if result is None else self.adapter.batches.score(result)

    # --- examples ----------------------------------------------------------------------------------------------------

    def _start(self, proposal: RacedProposal, row_id: int) -> None:
        """Start an evaluation; it is numbered now."""
        evaluate = self.adapter.request_example(proposal.candidate, self.rows[row_id])
        proposal.evaluated.append(row_id)
        self._tasks.append(asyncio.create_task(self._evaluated(len(self._tasks), proposal, row_id, evaluate)))

    async def _evaluated(
        self, at: int, proposal: RacedProposal, row_id: int, evaluate: Callable[[], Awaitable[dict[str, Any]]]
    ) -> None:
        try:
            proposal.results[row_id] = await evaluate()
        except (Exception, Interrupted) as error:  # noqa: BLE001 - raised by `run`
            self._failures.append((at, error))
        self._one_ended.set()

    def _raise_failure(self) -> None:
        """Raise an interruption, or the failure of the example that was requested first, if there is any."""
        if self._failures:
            raise min(self._failures, key=lambda failed: (not isinstance(failed[1], Interrupted), failed[0]))[1]


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
    val: RowLoader
    seed: int
    perfect: float
    on_lost: Callable[[Candidate], None] = lambda _candidate: None
    dropped: Set[int] = frozenset()
    _races: int = field(default=0, init=False)
    _lost: dict[int, RacedOut] = field(default_factory=dict, init=False)
    """How proposals of the last selection lost, by their `id`."""

    def select(
        self, proposals: list[CandidateProposal[Any]], state: GEPAState[Any, Any], acceptance: AcceptanceCriterion
    ) -> list[CandidateProposal[Any]]:
        """Return the proposals that the other strategy selects and that survive their race.

        The adapter has the results of survivors on the rows that GEPA's cache lacks, in the order of the rows.

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
        batches = {digest: self._batch(each, sorted(each.evaluated)) for digest, each in kept.items() if each.evaluated}
        self.adapter.raced = batches
        raced_out = ((each, lost.get(digest_of(each.candidate))) for each in selected)
        self._lost = {id(each): self._outcome(loser) for each, loser in raced_out if loser is not None}
        return survivors

    def rejecting(self, proposal: CandidateProposal[Any]) -> dict[str, Any]:
        """Return the fields of `Rejected` by which a proposal of the last selection that lost its race differs."""
        lost = self._lost.get(id(proposal))
        return {} if lost is None else lost.rejecting()

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
