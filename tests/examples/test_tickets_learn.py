"""The tickets program's own proposals reach what the example promises, for any seed."""

from types import ModuleType
from typing import Any

import pytest
from gepa.api import optimize
from gepa.core.adapter import EvaluationBatch, GEPAAdapter

from tests.support.rounds import rounds

Rows = list[dict[str, Any]]


class InProcess(GEPAAdapter[dict[str, Any], dict[str, Any], str]):
    """The program without any server."""

    propose_new_texts = None

    def __init__(self, program: ModuleType) -> None:
        self.program = program

    def evaluate(
        self, batch: Rows, candidate: dict[str, str], capture_traces: bool = False
    ) -> EvaluationBatch[dict[str, Any], str]:
        outputs = [self.program.run(row, candidate) for row in batch]
        scored = [self.program.score(row, output) for row, output in zip(batch, outputs, strict=True)]
        records = [
            {"Inputs": row, "Generated Outputs": output, "Feedback": feedback}
            for row, output, (_, feedback) in zip(batch, outputs, scored, strict=True)
        ]
        return EvaluationBatch(outputs, [float(score) for score, _ in scored], records if capture_traces else None)

    def make_reflective_dataset(
        self, candidate: dict[str, str], eval_batch: Any, components_to_update: list[str]
    ) -> dict[str, Any]:
        del candidate  # the records hold all of it
        return dict.fromkeys(components_to_update, eval_batch.trajectories)


class Silent:
    def log(self, message: str) -> None:
        pass


def improved(
    program: ModuleType, rows: dict[str, Rows], *, seed: int, calls: int, minibatch: int
) -> tuple[float, float, dict[str, str]]:
    """The mean scores of the seed and of the best candidate on the test rows, and the best candidate."""
    adapter = InProcess(program)
    result: Any = optimize(
        seed_candidate=dict(program.seed_candidate),
        trainset=rows["train"],
        valset=rows["val"],
        adapter=adapter,
        custom_candidate_proposer=program.propose_new_texts,
        reflection_minibatch_size=minibatch,
        max_metric_calls=calls,
        candidate_selection_strategy="current_best",
        seed=seed,
        logger=Silent(),
    )
    best = result.best_candidate
    assert isinstance(best, dict)
    first, last = (adapter.evaluate(rows["test"], one).scores for one in (program.seed_candidate, best))
    return sum(first) / len(first), sum(last) / len(last), best


@pytest.mark.repeated
@pytest.mark.parametrize("seed", rounds(5))
def test_the_tickets_get_better_on_rows_held_out_by_a_page_that_fits_a_screen(
    python_tickets: ModuleType, tickets_rows: dict[str, Rows], seed: int
) -> None:
    first, best, page = improved(python_tickets, tickets_rows, seed=seed, calls=832, minibatch=40)
    assert 0.2 < first < best - 0.15
    lines = page["rules"].split("\n")
    assert 15 < len(lines) <= 40
    assert all(len(line) <= 80 for line in lines)


def learned(program: ModuleType, rules: str, *messages: tuple[str, str]) -> str:
    """The text that the program proposes for `rules`, after messages with the desks they were for."""
    records = [{"Inputs": {"text": text}, "Feedback": f"expected: {desk}, got: x"} for text, desk in messages]
    texts = program.propose_new_texts({"rules": rules, "more": "a -> b"}, {"rules": records}, ["rules"])
    assert list(texts) == ["rules"]
    text = texts["rules"]
    assert isinstance(text, str)
    return text


def test_a_line_is_added_for_a_word_that_two_messages_of_a_desk_share(python_tickets: ModuleType) -> None:
    late, lost = ("where is my parcel", "shipping"), ("PARCELS are late!", "shipping")
    rules = "crash -> bug\notherwise -> feature"
    assert learned(python_tickets, rules, late, lost) == "crash -> bug\nparcel -> shipping\notherwise -> feature"
    assert learned(python_tickets, "", late, lost) == "parcel -> shipping"
    assert learned(python_tickets, rules, late) == rules
    assert learned(python_tickets, rules, late, lost, ("a parcel for free", "billing"), ("parcel", "bug")) == rules
    assert learned(python_tickets, rules) == rules


def test_a_line_that_is_wrong_twice_more_often_than_right_is_removed(python_tickets: ModuleType) -> None:
    rules = "free -> bug\n# a remark\notherwise -> feature"
    wrong = [("a free one", "feature"), ("set me free", "feature")]
    assert learned(python_tickets, rules, *wrong) == "# a remark\notherwise -> feature"
    assert learned(python_tickets, rules, *wrong, ("freezes, not free", "bug")) == rules
