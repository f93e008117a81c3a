"""Records fit into a budget of tokens: long texts are cut in the middle, whole records left out last."""

import random

import pytest
from gepa.image import Image
from gepa.strategies.instruction_proposal import InstructionProposalSignature

from gepa_client.gepa.reflection_prompt import RecordBudget

TEMPLATE = InstructionProposalSignature.default_prompt_template


def record(text: str, feedback: str = "state why") -> dict[str, object]:
    return {"Inputs": {"question": "q"}, "Generated Outputs": text, "Feedback": feedback}


def prompt_bytes(records, text="Answer.") -> int:
    rendered = InstructionProposalSignature.prompt_renderer(
        {"current_instruction_doc": text, "dataset_with_feedback": records, "prompt_template": None}
    )
    shown = rendered if isinstance(rendered, str) else rendered[0]["content"][0]["text"]
    return len(shown.encode())


def test_the_longest_text_is_cut_in_its_middle_and_states_how_much_is_left_out():
    text = f"begin{'-' * 20_000}end"
    records = [record(text), record("short")]
    found = RecordBudget(1500).fit(records, "")
    [cut, same] = found.records
    assert same == record("short")
    assert {**cut, "Generated Outputs": text} == record(text)
    before, left_out, after = str(cut["Generated Outputs"]).split("\n")
    assert before.startswith("begin-")
    assert after.endswith("-end")
    assert left_out == f"… {len(text) - len(before) - len(after):,} characters left out …"
    assert 5400 < prompt_bytes([cut, same]) - prompt_bytes([]) < 6100
    assert (found.shortened, found.left_out, found.setting) == (1, 0, "reflection_prompt_tokens")
    assert found.tokens == pytest.approx(len(text) / 4 - 1500, rel=0.05)


def test_whole_records_are_left_out_last_and_the_first_is_always_there():
    records = [record(f"{number}" * 5_000) for number in range(9)]
    found = RecordBudget(prompt_tokens=2_000).fit(records, TEMPLATE)
    assert 0 < len(found.records) < 9
    assert found.left_out == 9 - len(found.records)
    assert found.shortened == len(found.records)
    assert [str(each["Generated Outputs"])[0] for each in found.records] == [
        str(number) for number in range(len(found.records))
    ]
    alone = RecordBudget(prompt_tokens=1_000).fit(records, "x" * 10_000)
    assert (len(alone.records), alone.left_out) == (1, 8)


def test_images_and_messages_stay_and_texts_in_other_scripts_count_by_their_bytes():
    image = Image(base64_data="aGk=", media_type="image/png")
    messages = [{"role": "user", "content": "漢" * 9_000}, {"role": "assistant", "content": "ok"}]
    [cut] = RecordBudget(prompt_tokens=3_000).fit([{"Inputs": {"messages": messages, "photo": image}}], "").records
    assert cut["Inputs"]["photo"] is image
    first, second = cut["Inputs"]["messages"]
    assert (first["role"], second) == ("user", messages[1])
    assert 7_000 < len(first["content"].encode()) < 8_100


def test_any_records_keep_to_the_budget_and_give_the_same_result_again():
    rng = random.Random(7)  # the same records in every run

    def value(depth: int):
        kind = rng.choice("tttdln" if depth < 4 else "tn")
        if kind == "t":
            return rng.choice("aé漢\n") * int(10 ** rng.uniform(0, 4.5))
        if kind == "n":
            return rng.random()
        parts = [value(depth + 1) for _ in range(rng.randint(0, 6))]
        return parts if kind == "l" else {f"k{at}": part for at, part in enumerate(parts)}

    for _ in range(200):
        records = [{"Inputs": value(0), "Feedback": value(3)} for _ in range(rng.randint(1, 12))]
        budget = RecordBudget(rng.randint(4_000, 40_000))
        found = budget.fit(records, TEMPLATE)
        assert found == budget.fit(records, TEMPLATE)
        assert prompt_bytes(found.records) <= 4 * (budget.prompt_tokens or 0) * 1.1
