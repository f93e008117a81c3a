"""Accept a proposal when a paired test finds it better than its parent, on more training rows if that is open."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gepa.core.adapter import EvaluationBatch
from gepa.core.state import GEPAState
from gepa.proposer.base import CandidateProposal
from gepa.strategies.acceptance import AcceptanceCriterion
from gepa.strategies.proposal_selection import SelectionStrategy

from evolverpc_common.settings.sources import SettingsError
from gepa_client.analysis.statistics.sequential import last_look
from gepa_client.gepa.rows import AnyRow, RowLoader
from gepa_client.journal.requests import digest_of

Proposal = CandidateProposal[Any]
State = GEPAState[Any, Any]
TOO_LITTLE = "too little evidence"
_Texts = tuple[tuple[str, str], ...]
"""A candidate that can be a key; the order of its components is that of its parent."""


class Evaluates(Protocol):
    """Evaluates candidates: the adapter that GEPA has."""

    def batch_evaluate(
        self, items: Sequence[tuple[dict[str, str], Sequence[AnyRow]]]
    ) -> list[EvaluationBatch[Any, Any]]:
        """Return the batch of each candidate on its rows."""


@dataclass(frozen=True)
class Verdict:
    """Whether a proposal is accepted, and why in words."""

    accepted: bool
    reason: str


@dataclass
class _Comparison:
    """A proposal and its parent on the same training rows, by GEPA's row id."""

    proposal: Proposal
    parent: dict[str, str]
    before: dict[int, float]
    after: dict[int, float]


@dataclass
class PairedAcceptance:
    """GEPA's acceptance criterion by an exact sign-flip test of the scores of proposal and parent on the same rows.

    A proposal that is not ahead is rejected. While the test is open, proposal and parent are evaluated on further
    training rows, twice as many in all each time, up to `rows`; a proposal that is still open then is rejected. At most
    a share `error` of proposals that are no better than their parents is accepted, as far as the minibatch, which
    reflection has read, is like other rows.

    The further rows are one random order of the training rows for each iteration, by `seed`: all that is open in an
    iteration is evaluated in one batch, siblings on the same rows as far as their minibatches allow.
    """

    adapter: Evaluates
    train: RowLoader
    minibatch: int
    error: float
    rows: int
    seed: int
    _verdicts: dict[int, Verdict] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._most = min(self.rows, len(self.train))
        self._sizes = [self.minibatch]  # of the looks
        while self._sizes[-1] < self._most:
            self._sizes.append(min(2 * self._sizes[-1], self._most))
        if 0.5**self._most > self.error:
            raise SettingsError(
                f"acceptance_criterion is `paired`, but no proposal can be accepted: one like its parent wins "
                f"all of {self._most} training rows by a chance of {0.5**self._most:.2g}, and acceptance_error is "
                f"{self.error:g}: raise it, or acceptance_rows"
            )

    def should_accept(self, proposal: Proposal, state: State) -> bool:  # noqa: ARG002 - GEPA's signature
        """Return the decision of `decide`."""
        return self._verdicts[id(proposal)].accepted

    def reject_reason(self, proposal: Proposal, state: State) -> str:  # noqa: ARG002 - GEPA's signature
        """Return why `decide` rejected it, with the numbers."""
        return self._verdicts[id(proposal)].reason

    def decide(self, proposals: Sequence[Proposal], state: State) -> None:
        """Decide on all proposals of an iteration. Raises: as the adapter."""
        self._verdicts = {}
        order = sorted(self.train.all_ids(), key=lambda row: digest_of([self.seed, state.i, row]))
        pending = [_comparison(proposal, state) for proposal in proposals]
        while pending:
            for one in pending:
                if (verdict := self._verdict(one)) is not None:
                    self._verdicts[id(one.proposal)] = verdict
            pending = [one for one in pending if id(one.proposal) not in self._verdicts]
            if pending:
                self._grow(pending, order, state)

    def _verdict(self, one: _Comparison) -> Verdict | None:
        """Return the verdict on the rows so far; None while it is open."""
        gains = [score - one.before[row] for row, score in one.after.items()]
        look = last_look(gains, self._sizes, self.error)
        found = f"{sum(gains) / len(gains):+.3g} a row on {len(gains)} training rows"
        if sum(gains) <= 0:
            return Verdict(False, f"not better than its parent: {found}")
        evidence = f"{found}, chance {look.chance:.2g} if it were no better, {look.allowed:.2g} allowed"
        if look.better is None:
            return None
        return Verdict(look.better, f"{'better than its parent' if look.better else TOO_LITTLE}: {evidence}")

    def _grow(self, pending: Sequence[_Comparison], order: Sequence[int], state: State) -> None:
        """Evaluate proposals and parents on further rows, in one batch; no pair of candidate and row twice."""
        further: list[list[int]] = []
        wanted: dict[_Texts, dict[int, None]] = {}
        for one in pending:
            size = next(size for size in self._sizes[1:] if size > len(one.after))
            further.append([row for row in order if row not in one.after][: size - len(one.after)])
            for candidate in (one.parent, one.proposal.candidate):
                wanted.setdefault(_texts(candidate), {}).update(dict.fromkeys(further[-1]))
        items = [(dict(texts), list(rows)) for texts, rows in wanted.items()]
        batches = self.adapter.batch_evaluate([(candidate, self.train.fetch(rows)) for candidate, rows in items])
        scores: dict[_Texts, Mapping[int, float]] = {}
        for (candidate, rows), batch in zip(items, batches, strict=True):
            scores[_texts(candidate)] = dict(zip(rows, batch.scores, strict=True))
            state.increment_evals(len(rows) if batch.num_metric_calls is None else batch.num_metric_calls)
            if state.evaluation_cache is not None:
                objectives = list(batch.objective_scores) if batch.objective_scores else None
                state.evaluation_cache.put_batch(candidate, rows, batch.outputs, batch.scores, objectives)
        for one, rows in zip(pending, further, strict=True):
            one.before |= {row: scores[_texts(one.parent)][row] for row in rows}
            one.after |= {row: scores[_texts(one.proposal.candidate)][row] for row in rows}


@dataclass
class DecidingSelection:
    """Wraps a selection strategy of GEPA's: the acceptance decides on all proposals before it selects."""

    selection: SelectionStrategy
    acceptance: PairedAcceptance

    def select(self, proposals: list[Proposal], state: State, acceptance: AcceptanceCriterion) -> list[Proposal]:
        """Return the proposals that the wrapped strategy selects."""
        self.acceptance.decide(proposals, state)
        return self.selection.select(proposals, state, acceptance)


def _comparison(proposal: Proposal, state: State) -> _Comparison:
    parent = state.program_candidates[proposal.parent_program_ids[0]]
    rows = proposal.subsample_indices or []
    before, after = proposal.subsample_scores_before or [], proposal.subsample_scores_after or []
    return _Comparison(proposal, parent, dict(zip(rows, before, strict=True)), dict(zip(rows, after, strict=True)))


def _texts(candidate: Mapping[str, str]) -> _Texts:
    return tuple(candidate.items())
