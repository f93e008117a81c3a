"""Answers of reflection that hold no new text are recognized, and those of well-behaved models are left alone."""

import pytest

from gepa_client.gepa.answer_check import AnswerCheck, AnswerForm
from gepa_client.journal.run_events import UnusableReason

BEFORE = "Answer with one word."
TEXT = "Answer with the name of a desk: billing, feature or delivery."
THOUGHT = "Okay, the examples fail because the desk is missing."


def judged(answer: str, *, again: bool = False) -> str:
    return AnswerForm(block=True).judged(answer, BEFORE, cut_off=False, block_expected=not again) or "usable"


@pytest.mark.parametrize(
    "answer",
    [
        f"```\n{TEXT}\n```",
        f"Here it is:\n```text\n{TEXT}\n```\nIt names the desks.",
        f"<think>\n{THOUGHT}\n</think>\n```\n{TEXT}\n```",
        f"{THOUGHT}\n</think>\n```\n{TEXT}\n```",  # a model whose chat template opens the tag
        f"```\nThink between <think> and </think>. {TEXT}\n```",
        f"```\n{TEXT} Begin with <think>.\n```",
        "```\nAn example:\n```json\n{}\n```\nAnswer so.\n```",
    ],
)
def test_a_block_with_a_text_is_usable(answer: str) -> None:
    assert judged(answer) == "usable"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "empty"),
        ("``` ```", "empty"),
        (f"Sure:\n```\n{TEXT}", "truncated"),
        (f"<think>\n{THOUGHT}", "monologue"),
        (f"<reasoning>{THOUGHT}\nA draft:\n```\n{TEXT}\n```\nBut it is", "monologue"),
        (f"<thinking>A draft is\n```\n{TEXT}\n```\n</thinking>\n```\n{TEXT}\n```", "monologue"),
        (f"A draft is\n```\n{TEXT}\n```\n</think>\n```\n{TEXT}\n```", "monologue"),
        (TEXT, "monologue"),
    ],
)
def test_what_is_no_text_has_its_reason(answer: str, reason: UnusableReason) -> None:
    assert judged(answer) == reason


@pytest.mark.timeout(30)
@pytest.mark.parametrize("filler", ["\n", "<think>\n", "```a\n", "` "])
def test_a_long_answer_is_judged_in_linear_time(filler: str) -> None:
    outcomes = ("usable", "monologue", "ambiguous", "truncated")
    assert judged(f"a{filler * 100_000}b", again=True) in outcomes
    assert judged(f"{filler * 100_000}b", again=True) in outcomes


INNER = f'{TEXT} Reply as\n```json\n{{"a": 1}}\n```'


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (f"```\n{TEXT}\n```\n\nWhy: as in\n```json\n{{}}\n```\n", "ambiguous"),
        (f"Now it is\n```\n{BEFORE}\n```\nI would write\n```\n{TEXT}\n```\n", "ambiguous"),
        (f"```\n{TEXT}\n```\n{{}}\n```\nThat is all.\n```", "ambiguous"),
        (f"````\n{INNER}\n````", INNER),
        (f"````markdown\n{INNER}\nSo:\n```\n{{}}\n```\n````\nIt has a longer fence.", f"{INNER}\nSo:\n```\n{{}}\n```"),
        (f"~~~\n{INNER}\n~~~", INNER),
        (f"```\n{INNER}\nThat is all.\n```", f"{INNER}\nThat is all."),
        (f"Here: ```\n{INNER}\nThat is all.\n```", "truncated"),
        (f"```plain text\n{TEXT}\n```", "ambiguous"),
        (f"1. This:\n   ```text\n   {TEXT}\n     - so\n   ```", f"{TEXT}\n  - so"),
        (f"```\n{TEXT}\n    ```\n```", f"{TEXT}\n    ```"),
        (f"I use ``` as asked.\n```\n{TEXT}\n``` I hope it helps.", TEXT),
        (f"```\r\n{TEXT}\r\n```\r\n", TEXT),
        (f"```\nReplace <side_info> and <curr_param>. {TEXT}\n```", f"Replace <side_info> and <curr_param>. {TEXT}"),
    ],
)
def test_the_text_alone_is_taken_from_an_answer_or_it_is_unusable(answer: str, text: str) -> None:
    assert judged(answer) in (text, "usable")
    assert judged(answer) != "usable" or AnswerForm(block=True).text(answer) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (TEXT, None),
        (f" {BEFORE}\n", "unchanged"),
        (" \n", "empty"),
        ("ab c " * 16 + "d", "too long"),
        ("ab c " * 16, None),
    ],
)
def test_a_text_is_new_not_empty_and_not_too_long(text: str, reason: UnusableReason | None) -> None:
    assert AnswerCheck(max_tokens=20).judged(text, BEFORE) == reason


def test_the_prompt_states_the_bound_and_a_second_one_the_reason() -> None:
    check = AnswerCheck(max_tokens=2_000)
    assert check.bounded("Improve.").endswith("at most 2,000 tokens, that is about 8,000 characters.")
    assert AnswerCheck().bounded("Improve.") == "Improve."
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "Improve."}, image]}]
    [again] = AnswerForm(block=True).asked_again(messages, "too long", check)
    assert isinstance(again, dict)
    assert again["content"][0]["text"].startswith("Improve.\n\nYou have answered this once already")
    assert "more than 2,000 tokens" in again["content"][0]["text"]
    assert again["content"][1] == image
    assert messages[0]["content"][0] == {"type": "text", "text": "Improve."}  # type: ignore[index]
