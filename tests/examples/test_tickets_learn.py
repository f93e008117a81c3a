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


def best_on_test_rows(program: ModuleType, rows: dict[str, Rows], *, seed: int, calls: int, minibatch: int) -> float:
    """The best candidate's mean score on the test rows."""
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
    scores = adapter.evaluate(rows["test"], best).scores
    return sum(scores) / len(scores)


@pytest.mark.repeated
@pytest.mark.parametrize("seed", rounds(5))
def test_the_tickets_get_half_better_on_rows_held_out(
    python_tickets: ModuleType, tickets_rows: dict[str, Rows], seed: int
) -> None:
    empty = InProcess(python_tickets).evaluate(tickets_rows["test"], python_tickets.seed_candidate)
    assert sum(empty.scores) == 0
    assert best_on_test_rows(python_tickets, tickets_rows, seed=seed, calls=1500, minibatch=30) >= 0.7


@pytest.mark.repeated
@pytest.mark.parametrize("seed", rounds(8))
def test_banking77_gets_above_four_fifths_on_rows_held_out(
    python_tickets: ModuleType, banking_rows: dict[str, Rows], seed: int
) -> None:
    assert best_on_test_rows(python_tickets, banking_rows, seed=seed, calls=3000, minibatch=20) > 0.80


def test_the_rows_are_enough_balanced_and_in_one_split_each(tickets_rows: dict[str, Rows]) -> None:
    everything = [row for rows in tickets_rows.values() for row in rows]
    assert len(everything) >= 120
    assert len({row["text"].lower() for row in everything}) == len(everything)
    labels = {row["label"] for row in everything}
    for rows in tickets_rows.values():
        counts = {label: sum(row["label"] == label for row in rows) for label in labels}
        assert len(set(counts.values())) == 1


def test_a_better_text_is_proposed_only_for_what_was_asked(python_tickets: ModuleType) -> None:
    records = [{"Inputs": {"text": "where is my parcel"}, "Feedback": "expected: shipping, got: billing"}]
    texts = python_tickets.propose_new_texts({"rules": "billing: parcel 3"}, {"rules": records}, ["rules"])
    assert list(texts) == ["rules"]
    assert python_tickets.run({"text": "a PARCEL!"}, texts) == "shipping"
    assert python_tickets.propose_new_texts({"rules": "a: bcd 2"}, {}, ["rules"]) == {"rules": "a: bcd 2"}
