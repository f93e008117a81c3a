"""Accept a proposal if a paired test finds it better than its parent, on more training rows if these are too few."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gepa.core.state import GEPAState
from gepa.proposer.base import CandidateProposal
from gepa.strategies.acceptance import AcceptanceCriterion
from gepa.strategies.proposal_selection import AllImprovements, SelectionStrategy

from evolverpc_common.settings.sources import SettingsError
from gepa_client.gepa.hooks import cache_batch
from gepa_client.gepa.rows import RowLoader
from gepa_client.journal.requests import digest_of

Proposal = CandidateProposal[Any]
State = GEPAState[Any, Any]
TOO_LITTLE = "too little evidence"


@dataclass(frozen=True)
class AcceptanceDecision:
    """Whether a proposal is accepted, and the reason with its numbers."""

    accepted: bool
    reason: str


@dataclass
class _Comparison:
    """A proposal and its parent on the same training rows, by GEPA's row id."""

    proposal: Proposal
    parent: dict[str, str]
    before: dict[int, float]
    after: dict[int, float]


ERROR, MINIBATCHES = 0.2, 4
"""The share of proposals no better than their parents that is accepted, at most; a comparison's rows in minibatches."""


@dataclass
class PairedAcceptance:
    """GEPA's acceptance criterion by an exact sign-flip test of the scores of proposal and parent on the same rows.

    It is GEPA's selection strategy too, and decides on all proposals before another strategy, `selection`, selects.

    A proposal whose scores do not sum to more than its parent's is rejected. As long as the test is undecided, proposal
    and parent are evaluated on further training rows, until they have twice as many, up to `rows` (by default
    `MINIBATCHES` minibatches); a proposal that is undecided then is rejected. At most a share `error` of proposals that
    are no better than their parents is accepted, if the rows of the minibatch, which reflection has read, are like
    other rows.

    `adapter`: that of GEPA, with a `batch_evaluate`. `minibatch`: the number of its rows. The further rows are taken in
    a random order of the training rows, by `seed`, which is another one in each iteration. All undecided proposals of
    an iteration are evaluated in one batch.

    Raises:
        SettingsError: with so few rows no proposal could be accepted.
    """

    adapter: Any
    train: RowLoader
    minibatch: int
    seed: int
    error: float = ERROR
    rows: int | None = None
    selection: SelectionStrategy = field(default_factory=AllImprovements)
    _decisions: dict[int, AcceptanceDecision] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._most = min(self.rows or MINIBATCHES * self.minibatch, len(self.train))
        self._sizes = [min(self.minibatch, len(self.train))]  # of the looks
        while self._sizes[-1] < self._most:
            self._sizes.append(min(2 * self._sizes[-1], self._most))
        if 0.5**self._most > self.error:
            raise SettingsError(
                f"acceptance_criterion is `paired`, but no proposal can be accepted: one that is no better than its "
                f"parent is ahead on all of {self._most} training rows with probability {0.5**self._most:.2g}, and "
                f"at most {self.error:g} is allowed: give more training rows"
            )

    def select(self, proposals: list[Proposal], state: State, acceptance: AcceptanceCriterion) -> list[Proposal]:
        """Decide on the proposals, and return those that the other strategy selects. Raises: as `decide`."""
        self.decide(proposals, state)
        return self.selection.select(proposals, state, acceptance)

    def should_accept(self, proposal: Proposal, state: State) -> bool:  # noqa: ARG002 - GEPA's signature
        """Return the decision of `decide`."""
        return self._decisions[id(proposal)].accepted

    def reject_reason(self, proposal: Proposal, state: State) -> str:  # noqa: ARG002 - GEPA's signature
        """Return why `decide` rejected it, with the numbers."""
        return self._decisions[id(proposal)].reason

    def decide(self, proposals: Sequence[Proposal], state: State) -> None:
        """Decide on all proposals of an iteration. Raises: as the adapter."""
        self._decisions = {}
        order = sorted(self.train.all_ids(), key=lambda row: digest_of([self.seed, state.i, row]))
        pending = [_comparison(proposal, state) for proposal in proposals]
        while pending:
            for one in pending:
                if (decision := self._decision(one)) is not None:
                    self._decisions[id(one.proposal)] = decision
            pending = [one for one in pending if id(one.proposal) not in self._decisions]
            if pending:
                self._grow(pending, order, state)

    def _decision(self, one: _Comparison) -> AcceptanceDecision | None:
        """Return the decision on the rows so far; None if it needs further rows, as of a minibatch with a row twice."""
        gains = [score - one.before[row] for row, score in one.after.items()]
        found = f"{sum(gains) / len(gains):+.3g} a row on {len(gains)} training rows"
        if sum(gains) <= 0:
            return AcceptanceDecision(False, f"not better than its parent: {found}")
        if len(gains) < self._sizes[0]:
            return None
        look = last_look(gains, self._sizes, self.error)
        evidence = f"{found}, chance {look.chance:.2g} if it were no better, {look.allowed:.2g} allowed"
        if look.better is None:
            return None
        return AcceptanceDecision(look.better, f"{'better than its parent' if look.better else TOO_LITTLE}: {evidence}")

    def _grow(self, pending: Sequence[_Comparison], order: Sequence[int], state: State) -> None:
        """Evaluate proposals and parents on further rows, in one batch; each candidate once on each row."""
        further: list[list[int]] = []
        wanted: dict[str, tuple[dict[str, str], dict[int, None]]] = {}
        for one in pending:
            size = next(size for size in self._sizes if size > len(one.after))
            further.append([row for row in order if row not in one.after][: size - len(one.after)])
            for candidate in (one.parent, one.proposal.candidate):
                _, its_rows = wanted.setdefault(digest_of(candidate), (candidate, {}))
                its_rows.update(dict.fromkeys(further[-1]))
        items = [(candidate, list(rows)) for candidate, rows in wanted.values()]
        batches = self.adapter.batch_evaluate([(candidate, self.train.fetch(rows)) for candidate, rows in items])
        scores: dict[str, Mapping[int, float]] = {}
        for digest, (candidate, rows), batch in zip(wanted, items, batches, strict=True):
            scores[digest] = dict(zip(rows, batch.scores, strict=True))
            state.increment_evals(len(rows) if batch.num_metric_calls is None else batch.num_metric_calls)
            cache_batch(state, candidate, rows, batch)
        for one, rows in zip(pending, further, strict=True):
            before, after = scores[digest_of(one.parent)], scores[digest_of(one.proposal.candidate)]
            one.before |= {row: before[row] for row in rows}
            one.after |= {row: after[row] for row in rows}


def _comparison(proposal: Proposal, state: State) -> _Comparison:
    parent = state.program_candidates[proposal.parent_program_ids[0]]
    rows = proposal.subsample_indices or []
    before, after = proposal.subsample_scores_before or [], proposal.subsample_scores_after or []
    return _Comparison(proposal, parent, dict(zip(rows, before, strict=True)), dict(zip(rows, after, strict=True)))


STEPS, MOST_STEPS = 32, 128
"""The largest difference of the first look has 32 steps. All differences are rounded to steps, and none counts more
than 128 of them, so that there are few sums to count."""


@dataclass(frozen=True, slots=True)
class Look:
    """The last look. `better`: True or False if the decision is made, None while it is open.

    `chance`: of so large a sum at this look, or a larger one, if the two candidates are alike. `allowed`: the chance up
    to which the decision is for the second candidate.
    """

    better: bool | None
    chance: float
    allowed: float


def last_look(differences: Sequence[float], sizes: Sequence[int], error: float) -> Look:
    """Return the decision about a second candidate, given one difference a row, second minus first.

    There is a look after each of `sizes` rows, growing; `differences` has as many rows as one of them, or fewer than
    the first, and every look before was open. The second candidate is not better once its sum is not above 0, nor if
    the last look is still open. It is better if `chance` is at most `allowed`: what the looks before have left of
    `error`.

    If the candidates are alike, each difference may have had the other sign. The chances are those of all choices of
    signs that would have been open at the looks before, counted by sums. So in all, at most a share `error` of second
    candidates that are alike is found better, for differences of any sizes.

    Sources: Lan and DeMets, Discrete sequential boundaries for clinical trials, Biometrika 70 (1983), for spending the
    error over looks; Fisher, The Design of Experiments (1935), section 21, for the signs.
    """
    first = min(sizes[0], len(differences))
    step = max(map(abs, differences[:first]), default=0.0) / STEPS
    steps = [max(-MOST_STEPS, min(round(each / step), MOST_STEPS)) for each in differences] if step else []
    open_sums, seen, left = {0: 1.0}, 0, error
    for size in [first, *sizes[1:]]:
        for change in map(abs, steps[seen:size]):
            open_sums = _with_either_sign(open_sums, change)
        seen = size
        chance = sum(share for value, share in open_sums.items() if value >= sum(steps[:size]))
        if size == len(differences):
            break
        limit, spent = _limit(open_sums, left)
        open_sums = {value: share for value, share in open_sums.items() if 0 < value < limit}
        left -= spent
    if sum(steps) <= 0:
        return Look(False, chance, left)
    better = True if chance <= left else False if len(differences) >= sizes[-1] else None
    return Look(better, chance, left)


def _with_either_sign(sums: dict[int, float], change: int) -> dict[int, float]:
    if not change:
        return sums
    changed: dict[int, float] = {}
    for value, share in sums.items():
        for signed in (value + change, value - change):
            changed[signed] = changed.get(signed, 0.0) + share / 2
    return changed


def _limit(sums: dict[int, float], allowed: float) -> tuple[float, float]:
    """Return the least sum above 0 that is found better, infinite if none is, and the chance of that."""
    limit, spent = float("inf"), 0.0
    for value in sorted(sums, reverse=True):
        if value <= 0 or spent + sums[value] > allowed:
            break
        limit, spent = value, spent + sums[value]
    return limit, spent
