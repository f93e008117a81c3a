"""A certificate states what the sealed rows of a run's record show, and there is none where they show nothing."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gepa_client.analysis.paired_comparison import compare
from gepa_client.analysis.power import Noise
from gepa_client.certificate.certificate import Certificate, certify
from gepa_client.certificate.evidence import ByHand, RecordedEntries
from gepa_client.certificate.sealed_test import decide
from gepa_client.errors import NoCertificate
from gepa_client.journal.steer_entries import Propose, SteerEntry
from gepa_client.journal.store import open_store
from tests.gepa_client.certificate.certified_run import BEST, TEST_SCORES, Certified


def certified(tmp_path: Path, **changes: Any) -> Certificate:
    with closing(open_store(str(tmp_path / "runs.db"))) as store:
        return certify(store, Certified(**changes).into(store))


def test_a_gain_on_the_sealed_rows_is_certified_with_its_numbers(tmp_path: Path) -> None:
    found = certified(tmp_path)
    assert found.verdict == "improved"
    assert found.candidate == BEST
    seed, best = ([[score] for score in scores] for scores in TEST_SCORES)
    expected = compare(seed, best, error=0.04)
    test = found.test
    assert (test.rows, test.units, test.repeats, test.opened, test.seed, test.best) == (12, 12, 1, 1, 0.0, 10 / 12)
    assert test.score_range == (0, 1)
    for name in ("difference", "low", "high", "p_value"):
        assert getattr(test, name) == getattr(expected, name)
    assert (found.validation.rows, found.validation.compared) == (4, 5)
    assert (found.validation.seed, found.validation.best) == (0.0, 1.0)
    assert found.validation.high == 1.0, "no score is above its range"
    assert (found.budget.evaluations, found.budget.test_evaluations) == (20, 24)
    assert found.budget.cost_usd == pytest.approx(20 * 0.01 + 4 * 0.002 + 24 * 0.01)
    assert found.statement.startswith(
        "improved: on 12 sealed test rows the seed scores 0 and candidate 4 scores 0.8333"
    )


def test_rows_that_are_equal_but_for_white_space_and_the_order_of_keys_count_once(tmp_path: Path) -> None:
    """40 rows of 4 contents, of which the best candidate wins 3."""
    same = ({"a": "red car", "b": 1}, {"b": 1, "a": " red\n car "})
    contents = [{"c": content} if content else same[copy % 2] for content in range(4) for copy in range(10)]
    best = [1.0] * 30 + [0.0] * 10
    found = certified(tmp_path, scores=([0.0] * 40, best), contents=contents)
    assert (found.test.rows, found.test.units, found.test.difference) == (40, 4, 0.75)
    assert (found.verdict, found.test.p_value) == ("no difference", 2 / 2**3)
    assert "on 40 sealed test rows that count as 4, since equal rows count once, the seed scores" in found.statement
    shuffled = certified(tmp_path, run_id="shuffled", scores=([0.0] * 40, best[::-1]), contents=contents[::-1])
    assert shuffled.test == found.test


@pytest.mark.parametrize(
    ("settings", "best"), [({}, 1.5), ({}, -2.0), ({"perfect_score": 0.0}, 0.0), ({"score_range": [0.0, 0.5]}, 1.0)]
)
def test_a_score_outside_the_declared_range_gives_no_certificate(
    tmp_path: Path, settings: dict[str, Any], best: float
) -> None:
    with pytest.raises(NoCertificate, match="are recorded, but a certificate rests on the range"):
        certified(tmp_path, scores=([0.0] * 12, [best] * 12), config=settings)


def test_the_statement_names_the_leaks_that_weaken_it(tmp_path: Path) -> None:
    copied = "Which of these two bills was charged by mistake, and on which day of the month?"
    contents = [{"text": copied}, {"need": " red "}, *({"text": f"other {at}"} for at in range(10))]
    found = certified(tmp_path, contents=contents, texts=("", "red", "blue", "red blue", f"red\ngreen\nblue {copied}"))
    assert found.leaks.shared == {"train": 1, "val": 0}
    assert found.statement.endswith(
        "; this is weakened by leaks: the best candidate contains texts of 1 validation or test row, and 1 of 12 test "
        "rows are training rows too"
    )


def test_rows_that_were_opened_before_ask_for_more(tmp_path: Path) -> None:
    moved = [1.0] * 6 + [0.0] * 6
    once = certified(tmp_path, scores=([0.0] * 12, moved))
    again = certified(tmp_path, run_id="again", scores=([0.0] * 12, moved), also_tested=2)
    assert (once.verdict, again.verdict) == ("improved", "no difference")
    assert (once.test.error, again.test.opened, again.test.error) == (0.04, 2, 0.008)
    assert (once.test.confidence, again.test.confidence) == (0.96, 0.992)
    assert "2 candidates were scored on these rows" in again.statement


@pytest.mark.parametrize(
    ("noise", "count", "reason"),
    [
        (None, 1, "no noise is known"),
        (Noise(9, 2, 0.0, 1.0), 1, "9 evaluations that the search repeated had the same score"),
        (Noise(9, 2, 0.01, 0.2), 1, "asks for 1"),
        (Noise(9, 2, 0.1, 0.2), 2, "asks for 2"),
        (Noise(9, 2, 0.5, 0.2), 5, "asks for 10, at most 5"),
        (Noise(9, 2, 0.5, 0.0), 5, "asks for 5"),
    ],
)
def test_test_rows_are_scored_as_often_as_noise_asks_within_bounds(
    noise: Noise | None, count: int, reason: str
) -> None:
    decided = decide(noise)
    assert decided.count == count
    assert reason in decided.reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"scores": ((), ())}, "the run has no test rows: give `testset`"),
        ({"status": "paused"}, "the run is paused: its test rows are scored when the search is complete"),
        ({"committed": False}, "did not commit to its test rows"),
        ({"tested": (0,)}, "0 of 12 results of candidate 4 on the test rows are recorded"),
        ({"scores": ([0.0], [1.0])}, "a single test row"),
    ],
)
def test_without_a_complete_test_there_is_no_certificate(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(NoCertificate, match=reason):
        certified(tmp_path, **changes)


def test_a_fork_has_no_certificate_unless_it_begins_at_0(tmp_path: Path) -> None:
    parent: dict[str, Any] = {"run": "another", "at": 7}
    with closing(open_store(str(tmp_path / "runs.db"))) as store:
        run = Certified().into(store)
        with pytest.raises(NoCertificate, match="is a fork: its first 7 entries"):
            certify(store, replace(run, parent=parent))
        assert certify(store, replace(run, parent=parent | {"at": 0})).verdict == "improved"


def test_a_candidate_has_texts_by_hand_also_if_it_descends_from_one_of_several(tmp_path: Path) -> None:
    with closing(open_store(str(tmp_path / "runs.db"))) as store:
        run = Certified().into(store)
        pool, recorded = store.candidates(run.id), RecordedEntries(store, run)
    for kept in (pool[1], pool[3]):
        asked = Propose(texts=kept.texts, parent=kept.parents[0])
        recorded._steered[kept.number - 1] = SteerEntry(id=str(kept.index), action=asked, author="ann", created="now")
    assert recorded.by_hand(pool, pool[3]) == ByHand(requests=2, texts=2, best_has_them=True)
    assert recorded.by_hand(pool[:1], pool[0]) == ByHand(requests=2, texts=2, best_has_them=False)
