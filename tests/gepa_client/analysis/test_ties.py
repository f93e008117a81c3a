"""Which candidates tie with the best, and which of them further rows choose."""

import pytest

from gepa_client.analysis.ties import decide, tied


def scores(text: str) -> dict[int, float]:
    return {row: float(score) for row, score in enumerate(text)}


@pytest.mark.parametrize(
    ("candidates", "found"),
    [
        (["1100"], [0]),
        (["1100", "1111"], [1]),  # leads by 0.5, with an error of 0.29
        (["1100", "1110"], [1, 0]),  # leads by 0.25, with an error of 0.25
        (["1100", "0011"], [0, 1]),
        (["1100", "1100"], [0]),  # the same scores
        (["0000", "0011", "1100", "1010", "0101", "1001"], [1, 2, 3, 4]),
    ],
)
def test_candidates_within_one_paired_standard_error_tie(candidates: list[str], found: list[int]) -> None:
    assert tied([scores(each) for each in candidates]) == found


def test_candidates_with_scores_on_other_rows_do_not_tie() -> None:
    assert tied([{0: 1.0, 1: 0.0}, {0: 0.0, 2: 1.0}]) == [0]


def test_every_row_counts_alike() -> None:
    decision = decide({2: [1.0, 1.0, 0.0, 0.0], 5: [1.0, 0.0, 0.0, 0.0]}, {2: [0.0, 0.0], 5: [1.0, 1.0]})
    assert (decision.best, decision.validation_rows, decision.rows) == (5, 4, 2)
    assert [(each.index, each.validation, each.fresh, each.mean) for each in decision.candidates] == [
        (2, 0.5, 0.0, 2 / 6), (5, 0.25, 1.0, 3 / 6),
    ]  # fmt: skip
    assert decide({2: [1.0], 5: [1.0]}, {2: [0.0], 5: [0.0]}).best == 2
