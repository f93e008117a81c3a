"""One race: proposals are evaluated on blocks of validation rows, and dropped by the rule as their scores come in.

A block starts before the blocks ahead of it have ended, so that slow examples leave no slot of the fleet idle. Yet each
decision depends on fixed rows, never on which examples happen to have ended: the same run makes the same decisions,
also after an interruption. A decision is recorded with its numbers and the rows of its block, and a replay reads it.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from gepa_client.errors import Interrupted
from gepa_client.gepa.adapter import RemoteAdapter
from gepa_client.gepa.row_loaders import AnyRow
from gepa_client.journal.entries import RACE
from gepa_client.journal.requests import SHOWN, digest_of, request_key
from gepa_client.selection.race_rule import drop_decision
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
