"""The tickets program gives the same outputs, scores and texts in Python and in TypeScript."""

import random
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

Call = Callable[..., Any]
Rows = list[dict[str, Any]]

ODD_TEXTS = [
    "",
    " \t\r\n",
    "PARCEL Parcel pArCeL, parcel.parcel!",
    "Straße ÄÖÜ äöü café parcel",
    "\u212aelvin \u0130stanbul \u017fame \uff50\uff41\uff52\uff43\uff45\uff4c \u0661\u0662\u0663",
    "parcel\u2028parcel\u0085par\u00adcel par\u200dcel",
    "📦parcel📦 \ud83d lone \udce6",
    "a\u0000bcd constructor __proto__ toString hasOwnProperty",
    "don't can't 2nd x86 007 39€",
    "word " * 5000,
]
ODD_RULES = [
    "",
    "parcel",
    "->",
    "-> shipping",
    "parcel ->",
    "parcel -> shipping\r\n  Kelvin\t->\tbilling \t",
    "parcel -> a -> b\nlone -> a->b",
    "otherwise -> x\nparcel -> y",
    "Otherwise, -> x",
    "otherwise ->\nword -> y",
    "parcel, parcel! -> x\npar cel -> y\n parcel lone -> z",
    "PARCEL -> x\u00a0\nlone -> y\u2028odd -> z",
    "__proto__ -> constructor\nconstructor -> toString\ntostring -> __proto__",
    "\U0001f4e6 -> x\nparcel -> \U0001f4e6\nlone -> \ud83d",
    "straße -> x\nstrasse -> y\ncaf -> z",
    "007 -> x\n2 -> y\n39 -> z",
    "# a remark - > and another -> remark\n\n\nword -> x",
    "my -> bug\nan -> bug\nlost -> bug\nwords -> bug\n\notherwise -> shipping\n",
    "\n".join(f"zz{number} -> x" for number in range(39)),
    "\n".join(f"zz{number} -> x" for number in range(45)),
]
ODD_RECORDS: Rows = [
    {},
    {"Inputs": {"text": "my parcel"}},
    {"Feedback": "expected: shipping, got: billing"},
    {"Inputs": {"text": None}, "Feedback": "expected: shipping, got: billing"},
    {"Inputs": [1], "Feedback": "expected: shipping, got: billing"},
    {"Inputs": {"text": "my parcel"}, "Feedback": None},
    {"Inputs": {"text": "my parcel"}, "Feedback": "The program failed: KeyError: 'text'"},
    {"Inputs": {"text": "my parcel"}, "Feedback": "expected: , got: billing"},
    {"Inputs": {"text": "my lost parcel"}, "Feedback": "expected: shipping, got: "},
    {"Inputs": "a bare string about an invoice", "Feedback": "expected: billing, got: shipping"},
    {"Inputs": {"text": "the odd one"}, "Feedback": "expected: odd, got: label, got: billing"},
    {"Inputs": {"text": "two lines here"}, "Feedback": "expected: two\nlines, got: \nbilling"},
    {"Inputs": {"text": "padded words"}, "Feedback": "expected:  padded : x , got: billing"},
    {"Inputs": {"text": "proto words"}, "Feedback": "expected: __proto__, got: constructor"},
    {"Inputs": {"text": "astral words"}, "Feedback": "expected: \U0001f4e6, got: \ue000"},
    {"Inputs": {"text": "£££ é"}, "Feedback": "expected: empty, got: shipping"},
]


def record(row: dict[str, Any], output: str, feedback: str) -> dict[str, Any]:
    return {"Inputs": row, "Generated Outputs": output, "Feedback": feedback}


def agree_over_a_training(python: ModuleType, typescript: Call, train: Rows, held_out: Rows) -> str:
    """Propose on minibatches as a run would; every text, output and score must be the same in both languages."""
    draw = random.Random(1)
    candidate = dict(python.seed_candidate)
    for _ in range(8):
        records = []
        for row in draw.sample(train, 20):
            output = python.run(row, candidate)
            assert typescript("run", row, candidate) == {"result": output}
            score, feedback = python.score(row, output)
            assert typescript("score", row, output) == {"result": [score, feedback]}
            records.append(record(row, output, feedback))
        texts = python.propose_new_texts(candidate, {"rules": records}, ["rules"])
        assert typescript("proposeNewTexts", candidate, {"rules": records}, ["rules"]) == {"result": texts}
        candidate = texts
    for row in held_out:
        assert typescript("run", row, candidate) == {"result": python.run(row, candidate)}
    text: str = candidate["rules"]
    return text


def test_both_languages_learn_the_same_texts_from_the_tickets(
    python_tickets: ModuleType, typescript_tickets: Call, tickets_rows: dict[str, Rows]
) -> None:
    text = agree_over_a_training(python_tickets, typescript_tickets, tickets_rows["train"], tickets_rows["test"])
    assert len(text.split("\n")) > 15


def test_both_languages_learn_the_same_texts_from_banking77(
    python_tickets: ModuleType, typescript_tickets: Call, banking_rows: dict[str, Rows]
) -> None:
    text = agree_over_a_training(python_tickets, typescript_tickets, banking_rows["train"], banking_rows["test"])
    assert len(text.split("\n")) > 15


@pytest.mark.parametrize("rules", ODD_RULES)
def test_odd_rules_and_odd_messages_are_read_alike(
    python_tickets: ModuleType, typescript_tickets: Call, rules: str
) -> None:
    candidate = {"rules": rules}
    for text in ODD_TEXTS:
        row = {"text": text, "label": "shipping"}
        output = python_tickets.run(row, candidate)
        assert typescript_tickets("run", row, candidate) == {"result": output}
        assert typescript_tickets("score", row, output) == {"result": list(python_tickets.score(row, output))}


@pytest.mark.parametrize("rules", ODD_RULES)
def test_odd_records_give_the_same_texts(python_tickets: ModuleType, typescript_tickets: Call, rules: str) -> None:
    records = [
        *ODD_RECORDS,
        *({"Inputs": {"text": text}, "Feedback": "expected: shipping, got: "} for text in ODD_TEXTS),
    ]
    for part in (records, *([one] for one in records), []):
        dataset = {"rules": part}
        texts = python_tickets.propose_new_texts({"rules": rules}, dataset, ["rules"])
        assert typescript_tickets("proposeNewTexts", {"rules": rules}, dataset, ["rules"]) == {"result": texts}


letters = st.text(alphabet="abzAZ09 ,:-\n\r\té\u212a\u0130\U0001f4e6\ue000", max_size=40)


@settings(max_examples=150, deadline=None)
@given(rules=letters, text=letters, label=letters)
def test_both_languages_agree_on_random_texts(
    python_tickets: ModuleType, typescript_tickets: Call, rules: str, text: str, label: str
) -> None:
    candidate, row = {"rules": rules}, {"text": text, "label": label}
    output = python_tickets.run(row, candidate)
    score, feedback = python_tickets.score(row, output)
    assert typescript_tickets("run", row, candidate) == {"result": output}
    assert typescript_tickets("score", row, output) == {"result": [score, feedback]}
    dataset = {"rules": [record(row, output, feedback)]}
    texts = python_tickets.propose_new_texts(candidate, dataset, ["rules"])
    assert typescript_tickets("proposeNewTexts", candidate, dataset, ["rules"]) == {"result": texts}


@pytest.mark.parametrize("row", [{}, {"text": None, "label": "a"}, {"text": 3, "label": "a"}, None, "text", ["text"]])
def test_a_row_without_a_text_fails_in_both(python_tickets: ModuleType, typescript_tickets: Call, row: Any) -> None:
    with pytest.raises((KeyError, TypeError)):
        python_tickets.run(row, {"rules": "a: b"})
    assert "failed" in typescript_tickets("run", row, {"rules": "a: b"})


@pytest.mark.parametrize("row", [{"text": "x"}, {"text": "x", "label": 3}, {"text": "x", "label": None}])
def test_a_row_without_a_label_cannot_be_scored_in_either(
    python_tickets: ModuleType, typescript_tickets: Call, row: Any
) -> None:
    with pytest.raises((KeyError, TypeError)):
        python_tickets.score(row, "a")
    assert "failed" in typescript_tickets("score", row, "a")
