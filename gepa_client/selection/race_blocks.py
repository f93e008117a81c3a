"""One race: proposals are evaluated on blocks of validation rows, and dropped as soon as their scores decide.

A block starts before the blocks ahead of it have ended, so that slow examples leave no slot of the fleet idle. Yet each
decision depends on fixed rows, never on which examples happen to have ended: the same run makes the same decisions,
also after an interruption. A decision is recorded with its numbers and the rows of its block, and a replay reads it.
"""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from gepa_client.errors import Interrupted
from gepa_client.gepa.adapter import RemoteAdapter
from gepa_client.gepa.rows import AnyRow
from gepa_client.journal.entries import RACE
from gepa_client.journal.requests import SHOWN, digest_of, request_key
from protocol import Candidate

LEAST_BLOCK = 5
"""Rows of the smallest block."""

BLOCKS_PER_FLEET = 8
"""How many blocks fill the slots of a large fleet."""

AHEAD = 1.75
"""Examples for each slot that are begun after the rows of a decision: with 2 to 6 s each, every slot stays busy."""


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
        compared = self._begun[: max(0, begun - _ahead(len(self._racing), self._slots))]
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
        block = rows[: self._block(len(compared), left, slots)]
        return {"validation_rows": len(self.rows), "slots": slots, "proposals": proposals, "rows": block}

    def _block(self, compared: int, racing: int, slots: int) -> int:
        """Return the rows of the next block: then so many are begun that each slot has its examples ahead."""
        if not racing:
            return 0
        return compared + _ahead(racing, slots) + _least_block(racing, slots) - len(self._begun)

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


def _ahead(racing: int, slots: int) -> int:
    """Return the rows that are begun after those of a decision; one slot has none to keep busy meanwhile."""
    return math.ceil(AHEAD * slots / racing) if slots > 1 else 0


def _least_block(racing: int, slots: int) -> int:
    return max(LEAST_BLOCK, math.ceil(slots / BLOCKS_PER_FLEET / racing))


ERROR = 0.9
"""The chance, at most, that a proposal is dropped that over all rows is exactly as good as the best candidate.

It is large because an equal is no gain, the next proposal is cheap, and a survivor costs all validation rows: decision
0022 has what other levels give.
"""

CERTAIN = 1e12
"""The most evidence there is: JSON has no infinity."""


@dataclass(frozen=True)
class DropDecision:
    """Whether a proposal is dropped, and the numbers behind it.

    `mean`: of the differences to the targets so far, 0 before the first. `evidence`: that it is worse; at 1 / `ERROR`
    it is dropped.
    """

    drops: bool
    mean: float
    evidence: float


def race_order(row_ids: Sequence[int], seed: int, race: int) -> list[int]:
    """Return the validation rows in random order.

    `row_ids`: GEPA's, of the validation rows of the search. `race`: the number of the race within the run. Each race
    has an order of its own: in an order that all share, the best of the pool would have won its own race by its luck on
    the first rows.
    """
    return random.Random(f"{seed} {race}").sample(row_ids, len(row_ids))  # noqa: S311 - no secret


def targets(pool: Sequence[Mapping[int, float]], parent: Mapping[int, float]) -> dict[int, float]:
    """Return what a proposal is compared with on each validation row.

    It is the mean of the scores of its parent and of the best candidate, plus a constant by which the mean over all
    rows is that of the best one. A proposal fails on rows where its parent fails, so it differs less from these targets
    than from the best candidate's own scores, and fewer rows decide.

    `pool`: the validation scores of each candidate that counts, by row id. `parent`: those of the parent.
    """
    best = max(pool, key=_mean)
    raised = (_mean(best) - _mean(parent)) / 2
    return {row_id: (score + parent[row_id]) / 2 + raised for row_id, score in best.items()}


def drop_decision(own: Sequence[float], targeted: Sequence[float], highest: float) -> DropDecision:
    """Return the decision on a proposal by its scores on the validation rows raced so far, in the order of the race.

    It is dropped if it will hardly be the best of the pool. The claim "over all validation rows it is at least as good
    as the targets", whose mean is that of the best candidate, is tested after every row by a bet, which stays valid
    however often one looks. It needs rows in random order (`race_order`) and a score that none exceeds. If a proposal
    exceeds that score, its own best one takes its place, and the error level holds approximately.

    `targeted`: what it is compared with on all validation rows, in the same order. `highest`: what no score should
    exceed, the perfect score or the highest one of the pool.
    """
    unit = _unit([highest, *own, *targeted])
    scores, targeted = ([score / unit for score in each] for each in (own, targeted))
    differences = [score - target for score, target in zip(scores, targeted, strict=False)]
    largest = max([highest / unit, *scores]) - min(targeted)
    evidence = min(CERTAIN, wealth(differences, len(targeted), 0.0, largest))
    mean = unit * sum(differences) / max(1, len(differences))
    return DropDecision(evidence >= 1 / ERROR, mean, evidence)


def _mean(scores: Mapping[int, float]) -> float:
    return sum(scores.values()) / len(scores)


def _unit(scores: Sequence[float]) -> float:
    """Return a power of two, so that scores in it keep all their digits and are less than 2."""
    return math.ldexp(1.0, math.frexp(max(map(abs, scores)))[1] - 1)


SHARES = (0.02, 0.05, 0.1, 0.2)
"""Of the wealth that each bet puts on a row: small ones find small differences, large ones large differences soon."""


def wealth(values: Sequence[float], population: int, mean: float, highest: float) -> float:
    """Return the largest wealth so far of the bet against a population mean of at least `mean`; at least 1.

    Values are drawn in random order without replacement, and before each one a share of the wealth is put on its being
    less than the claim expects of those that are left. If the claim is true, the wealth is a supermartingale and
    exceeds 1 / error with a probability of at most `error`, however often one looks (Ville's inequality). The shares
    are fixed and the wealth is their mean, so there is nothing to choose. Only a highest value is needed: a value that
    is lower than any before makes the wealth larger, but never negative. Source: Waudby-Smith and Ramdas, "Estimating
    means of bounded random variables by betting", JRSS B 86 (2024), section 5.

    `values`: in the order they were drawn. `population`: how many there are in all. `highest`: no value exceeds it.
    It is infinite if the values left cannot bring the mean to `mean`.

    Raises:
        ValueError: a value is above `highest`, is no number, or there are more values than the population has.
    """
    if len(values) > population:
        raise ValueError(f"{len(values)} values of a population of {population}")
    bets = [1.0] * len(SHARES)
    left = population * (highest - mean)  # by how much the values yet to come may fall short of the highest, in all
    most = 1.0
    slack = 1e-9 * max(1.0, abs(left))  # sums of floats
    for drawn, value in enumerate(values):
        shortfall = highest - value
        if not 0 <= shortfall < math.inf:
            raise ValueError(f"value {value} is no number up to {highest}")
        expected = left / (population - drawn)
        if expected > slack:
            ratio = shortfall / expected
            bets = [bet * (1 - share + share * ratio) for bet, share in zip(bets, SHARES, strict=True)]
            most = max(most, sum(bets) / len(bets))
        left -= shortfall
        if left < -slack:
            return math.inf
    return most
