"""Texts of validation and test rows in the best candidate are found, with their rows and places."""

import pytest

from gepa_client.certificate.leaks import Leaks, find_leaks
from gepa_client.journal.history import RecordedRow

QUESTION = "My card was charged two times for the same coffee this morning, can you help?"
PROMPT = """Name the team.

Examples:
- {} -> billing
"""


def row(name: str, data: object) -> RecordedRow:
    return RecordedRow(0, {"id": name, "data": data}, data)


def leaks(text: str, *rows: RecordedRow, seed: str = "Name the team.") -> Leaks:
    return find_leaks({"prompt": text}, {"prompt": seed}, {"test": rows})


def places(found: Leaks) -> list[tuple[str, int, bool, bool]]:
    return [(leak.row, leak.line, leak.verbatim, leak.answer) for leak in found.listed]


def test_a_copied_row_is_found_with_its_line_and_its_answer_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = leaks(PROMPT.format(QUESTION.lower()), row("7", {"text": QUESTION, "label": "billing"}), row("8", {"n": 1}))
    assert places(found) == [("7", 4, True, True)]
    assert (found.rows, found.searched) == (1, {"test": 2})
    both = PROMPT.format(QUESTION) + "Where is the parcel that I ordered for my sister last Monday?"
    monkeypatch.setattr("gepa_client.certificate.leaks.LISTED", 1)
    found = leaks(both, row("7", {"text": QUESTION}), row("8", {"text": both[-61:]}))
    assert (found.rows, len(found.listed)) == (2, 1)
    texts, training = {"prompt": PROMPT.format(QUESTION)}, {"train": [row("7", {"text": QUESTION})], "test": []}
    assert not find_leaks(texts, {}, training).any, "training rows may stand in a text"
    assert find_leaks(texts, {}, {"val": training["train"], "test": training["train"]}).rows == 2


def test_a_row_with_a_few_words_changed_is_found_as_nearly_copied() -> None:
    changed = QUESTION.replace("card", "wallet").replace("same coffee", "same tea")
    found = leaks(PROMPT.format(changed), row("7", {"text": QUESTION, "label": "shipping"}))
    assert places(found) == [("7", 4, False, False)]


def test_labels_alone_and_texts_of_the_seed_are_no_leak() -> None:
    prompt = PROMPT.format(QUESTION)
    assert places(leaks("billing, shipping or account", row("7", {"text": QUESTION, "label": "billing"}))) == []
    assert places(leaks(prompt, row("7", {"text": QUESTION}), seed=prompt)) == []


def test_rows_whose_contents_the_server_keeps_are_not_counted_as_searched() -> None:
    hidden = RecordedRow(0, {"id": "7", "split": "test"}, None)
    assert leaks(PROMPT, hidden, row("8", {"text": QUESTION})).searched == {"test": 1}
