"""The labels by which a page names rows."""

import pytest

from gepa_client.page.search_reader import LABEL, label_of


@pytest.mark.parametrize(
    ("data", "label"),
    [
        ({"number": 3, "text": " I was charged\ntwice ", "label": "billing"}, "I was charged twice"),
        ({"messages": [{"role": "", "content": "Where is it?\x1b[2J"}]}, "Where is it?\\u001b[2J"),
        ({"number": 3}, ""),
        (None, ""),
        ({"text": "a" * 100_000}, "a" * (LABEL - 1) + "…"),
    ],
)
def test_a_row_is_named_by_its_first_text_as_one_safe_line(data: object, label: str) -> None:
    assert label_of(data) == label
