"""What a text copies from rows is found, with its place, and in time linear in both."""

import random

import pytest

from gepa_client.analysis.copied_text import LEAST_WORDS, CopiedText, copied_texts

EXAMPLE = "I have been charged again, although I cancelled my subscription three weeks ago."
COPY = '"i have been CHARGED again although\n  I cancelled my subscription three weeks ago"'
PROMPT = f"Answer with a desk.\n\nExample: {COPY} is billing."


def found(text: str, *contents: object) -> list[CopiedText]:
    return copied_texts([text], [(str(at), content) for at, content in enumerate(contents)])[0]


def test_a_copied_example_is_found_with_its_row_and_place_in_any_case_and_punctuation() -> None:
    [copy] = found(PROMPT, {"text": "My parcel has not arrived at all."}, {"text": EXAMPLE, "label": "billing"})
    assert copy.rows == ("1",)
    assert copy.words == 13
    assert PROMPT[copy.start : copy.end] == COPY[1:-1]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("Please answer soon: cancelled my subscription three weeks ago", 0),  # six words of a longer text
        ("cancelled my subscription three weeks ago", 6),  # the whole text of a row
        ("three weeks ago", 0),  # too short to be an example
        ({"deep": [{"turns": [EXAMPLE]}]}, 13),
        ({EXAMPLE: 1, "price": 3.5, "nothing": None}, 0),  # a member's name is no example
    ],
)
def test_how_much_of_a_row_is_a_copy(content: object, words: int) -> None:
    assert sum(copy.words for copy in found(PROMPT, content)) == words


def test_rows_with_the_same_part_share_one_copy_and_texts_have_their_own() -> None:
    rows = [
        ("a", EXAMPLE),
        ("b", f"Hello. {EXAMPLE}"),
        ("c", "nothing in common with the other two rows, nothing at all"),
    ]
    copied, other = copied_texts([PROMPT, "Answer with a desk."], rows)
    assert [copy.rows for copy in copied] == [("a", "b")]
    assert other == []


@pytest.mark.parametrize("seed", range(20))
def test_every_run_of_words_that_a_text_shares_with_a_row_is_in_a_copy(seed: int) -> None:
    generator = random.Random(seed)
    text, row = (" ".join(generator.choices("abc", k=length)) for length in (120, 60))
    copies = found(text, row)
    for copy in copies:
        assert text[copy.start : copy.end] in row
        assert copy.words >= LEAST_WORDS
    words = row.split()
    parts = [" ".join(words[at : at + LEAST_WORDS]) for at in range(len(words) - LEAST_WORDS + 1)]
    shared = {part for part in parts if f" {part} " in f" {text} "}
    assert all(any(part in text[copy.start : copy.end] for copy in copies) for part in shared)
