"""Proposals are accepted by a paired test, on more training rows where it is open."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from gepa.core.adapter import EvaluationBatch
from gepa.core.state import EvaluationCache
from gepa.proposer.base import CandidateProposal

from evolverpc_common.settings.sources import SettingsError
from gepa_client.gepa.hooks import cached_scores
from gepa_client.gepa.rows import AnyRow, Row, RowLoader
from gepa_client.selection.paired_acceptance import PairedAcceptance

TRAIN = RowLoader([Row(str(at), {"n": at}) for at in range(40)])
Score = Callable[[str, int], float]


@dataclass
class State:
    """As much of GEPA's state as the acceptance uses."""

    program_candidates: list[dict[str, str]]
    i: int = 0
    evaluation_cache: EvaluationCache[Any, int] | None = None
    counted: int = 0

    def increment_evals(self, count: int) -> None:
        self.counted += count


def calls(text: str, ids: list[int]) -> int | None:
    """Metric calls that the adapter reports: two a row, or none for the seed."""
    return None if text == "seed" else 2 * len(ids)


@dataclass
class Adapter:
    """Scores a candidate's text on a row; `asked`: the texts and rows of each call."""

    score: Score
    asked: list[list[tuple[str, list[int]]]] = field(default_factory=list)

    def batch_evaluate(
        self, items: Sequence[tuple[dict[str, str], Sequence[AnyRow]]]
    ) -> list[EvaluationBatch[Any, Any]]:
        rows = [(candidate["text"], [int(row.id) for row in batch]) for candidate, batch in items]
        self.asked.append(rows)
        return [
            EvaluationBatch(ids, [self.score(text, at) for at in ids], num_metric_calls=calls(text, ids))
            for text, ids in rows
        ]


def proposal(text: str, ids: list[int], score: Score, parent: str = "seed") -> CandidateProposal[Any]:
    return CandidateProposal(
        candidate={"text": text},
        parent_program_ids=[0],
        subsample_indices=ids,
        subsample_scores_before=[score(parent, at) for at in ids],
        subsample_scores_after=[score(text, at) for at in ids],
    )


def decided(
    score: Score, ids: Sequence[list[int]] = ([0, 1, 2],), texts: Sequence[str] = ("new",), **more: Any
) -> tuple[list[bool], list[str], Adapter, State]:
    """Decide on one proposal for each text; return the decisions, the reasons, and what it took."""
    adapter = Adapter(score)
    state = State([{"text": "seed"}], i=more.pop("i", 0), evaluation_cache=more.pop("cache", None))
    options = {"minibatch": 3, "error": 0.2, "rows": 12, "seed": 0} | more
    acceptance = PairedAcceptance(adapter, TRAIN, **options)
    proposals = [proposal(text, rows, score) for text, rows in zip(texts, ids, strict=True)]
    acceptance.decide(proposals, state)  # type: ignore[arg-type]  # as much of it as is used
    accepted = [acceptance.should_accept(one, state) for one in proposals]  # type: ignore[arg-type]
    reasons = [acceptance.reject_reason(one, state) for one in proposals]  # type: ignore[arg-type]
    return accepted, reasons, adapter, state


def test_a_proposal_that_is_not_ahead_is_rejected_on_its_minibatch() -> None:
    accepted, [reason], adapter, _ = decided(lambda _text, at: 1.0 if at == 0 else 0.0)
    assert accepted == [False]
    assert reason == "not better than its parent: +0 a row on 3 training rows"
    assert adapter.asked == []


def test_a_close_decision_is_made_on_more_rows_which_are_counted() -> None:
    accepted, [reason], adapter, state = decided(lambda text, _at: 1.0 if text == "new" else 0.0, error=0.1)
    assert accepted == [True]
    assert reason == (
        "better than its parent: +1 a row on 6 training rows, chance 0.016 if it were no better, 0.1 allowed"
    )
    [[(parent, parent_rows), (child, child_rows)]] = adapter.asked
    assert (parent, child) == ("seed", "new")
    assert parent_rows == child_rows
    assert len(set(parent_rows) - {0, 1, 2}) == 3
    assert state.counted == 3 + 2 * 3
    *_, later, _ = decided(lambda text, _at: 1.0 if text == "new" else 0.0, error=0.1, i=1)
    assert later.asked[0][0][1] != parent_rows, "each iteration has an order of its own"


def test_a_proposal_that_stays_open_is_rejected_at_the_bound() -> None:
    def score(text: str, at: int) -> float:
        return 1.0 if text == "new" and at == 1 else 0.0

    accepted, [reason], adapter, state = decided(score)
    assert accepted == [False]
    assert reason.startswith("too little evidence: +0.0833 a row on 12 training rows, chance 0.5 if it were no better")
    assert [len(rows) for call in adapter.asked for _, rows in call] == [3, 3, 6, 6]
    assert state.counted == 9 + 2 * 9
    assert [len(rows) for call in decided(score, rows=6)[2].asked for _, rows in call] == [3, 3]
    with pytest.raises(SettingsError, match="no proposal can be accepted"):
        decided(score, rows=2, minibatch=1)


def test_open_proposals_of_an_iteration_share_a_batch_and_their_parents_rows() -> None:
    cache: EvaluationCache[Any, int] = EvaluationCache()
    _, _, adapter, state = decided(
        lambda text, _at: 1.0 if text != "seed" else 0.0,
        ([0, 1, 2], [3, 4, 5]),
        ("new", "newer"),
        cache=cache,
        error=0.1,
    )
    [call] = adapter.asked
    assert [text for text, _ in call] == ["seed", "new", "newer"]
    own = [rows for text, rows in call if text != "seed"]
    assert sorted(call[0][1]) == sorted({*own[0], *own[1]})
    assert state.counted == sum(calls(text, rows) or len(rows) for text, rows in call)
    assert cached_scores(state, {"text": "newer"}, own[1]) == dict.fromkeys(own[1], 1.0)  # type: ignore[arg-type]  # as much of it as is used
