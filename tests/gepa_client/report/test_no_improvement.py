"""A run that ends with its seed gives counts, examples and hints that its record supports."""

from typing import Any

from gepa_client.journal.run_events import (
    Event,
    FailedExamples,
    FailureGroup,
    Finished,
    NoProposal,
    Phase,
    RacedOut,
    Rejected,
    Started,
    StepFailed,
)
from gepa_client.report.no_improvement import no_improvement, unused_iterations
from gepa_client.report.run_record import RunRecord
from tests.gepa_client.example_records import candidate, started


def ended(*happened: Event, seed: float = 0.25, begin: Started | None = None, **finish: Any) -> dict[str, str]:
    record = RunRecord()
    last = Finished(**{"status": "completed", "metric_calls": 60, "search_complete": True, **finish})
    for event in (begin or started(), Phase(phase="seed"), candidate(0, seed, [], "a", 0, 12), *happened, last):
        record.apply(event)
    return dict(no_improvement(record))


def rejected(iteration: int, old: float | None, new: float | None, reason: str = "not better") -> Rejected:
    return Rejected(iteration=iteration, old_score=old, new_score=new, reason=reason)


def test_proposals_are_counted_by_why_they_were_not_kept() -> None:
    facts = ended(
        *(rejected(at, 1, 1) for at in (1, 2, 3)),
        rejected(4, 2, 1),
        candidate(1, 0.2, [0], "b", 0, 30),
        rejected(6, 1, 2, "Duplicate of candidate 1"),
        NoProposal(iteration=7, reason="all scores perfect"),
        StepFailed(iteration=8, step="reflection", message="Timeout: no answer"),
    )
    assert facts["no improvement"] == "6 proposals in 7 iterations; the seed is still the best candidate"
    assert facts["because"] == (
        "3 with the same score on their minibatch, 1 not better on the validation rows, 1 worse on their minibatch, "
        "1 Duplicate of candidate 1, 1 without a proposal (all scores perfect), 1 failed in reflection"
    )
    assert facts["for example"] == (
        "1 -> 1 (iteration 1), 1 -> 1 (iteration 3), 2 -> 1 (iteration 4); sums over minibatches of 3 rows"
    )
    assert facts["try"] == "the log: reflection failed first with Timeout: no answer"


def test_proposals_that_were_raced_out_are_counted_apart_from_those_worse_on_their_minibatch() -> None:
    race = RacedOut(compared=20, rows=60, calls=26, saved=34, mean=-0.25, bound=-0.1)
    lost = [rejected(at, 1, 2, "raced out").model_copy(update={"race": race}) for at in (1, 2)]
    facts = ended(*lost, rejected(3, 2, 1))
    assert facts["because"] == "2 raced out on the validation rows, 1 worse on their minibatch"
    assert facts["for example"] == "2 -> 1 (iteration 3); sums over minibatches of 3 rows"
    assert "2 proposals improved a minibatch only" in facts["try"]


def test_hints_fit_what_the_record_shows() -> None:
    same = [rejected(at, 1, 1) for at in range(1, 12)]
    assert ended(*same)["try"].startswith("--reflection-minibatch-size 6: ")
    assert ended(*same)["or"] == (
        "a check that the program uses the candidate's texts: no proposal changed the score of its minibatch"
    )
    assert "or" not in ended(*same, rejected(12, 2, 1))
    race = RacedOut(compared=20, rows=60, calls=26, saved=34, mean=-0.25, bound=-0.1)
    better = rejected(12, 1, 2, "raced out").model_copy(update={"race": race})
    assert "no proposal changed" not in str(ended(*same, better))
    wide = started(config={"reflection_minibatch_size": 8})
    assert ended(*same, begin=wide)["try"].startswith("--reflection-minibatch-size 16: ")
    assert ended(*(rejected(at, 0, 0) for at in range(1, 12)))["try"].startswith("a score with values between 0 and 1")
    worse = [rejected(at, 2, 1) for at in range(1, 12)]
    assert "--reflection-lm" not in ended(*worse)["try"]
    assert "or another --reflection-lm: " in ended(*worse, begin=started(proposer="openai/gpt-5"))["try"]
    skipped = [NoProposal(iteration=at, reason="all scores perfect") for at in range(1, 5)]
    facts = ended(*skipped)
    assert facts["try"].startswith("training rows that the seed fails on")
    assert "or" not in facts, "more metric calls would end in the same way"
    assert "for example" not in facts
    assert ended(rejected(1, 2, 1))["or"] == "--max-metric-calls 120: 1 proposal may be too few"


def failures(**candidates: int) -> FailedExamples:
    group = FailureGroup(
        type="ValueError", status="program_error", count=sum(candidates.values()), rows=["train 3"], row_count=1,
        candidates=candidates, message="not enough values to unpack", row="train 3", candidate="aaaa",
    )  # fmt: skip
    return FailedExamples(failed=group.count, evaluated=200, groups=[group])


def test_proposals_that_the_program_fails_on_are_the_first_cause() -> None:
    crashed = [rejected(at, 1, 0).model_copy(update={"candidate": "aaaa"}) for at in range(1, 10)]
    one_row = rejected(10, 1, 1).model_copy(update={"candidate": "bbbb"})
    facts = ended(*crashed, one_row, failures(aaaa=27, bbbb=1))
    assert facts["because"] == ("9 on which the program failed (ValueError), 1 with the same score on their minibatch")
    assert facts["try"] == (
        "a fix of the program, or of propose_new_texts: on 9 of 10 proposals the program failed, as with ValueError: "
        "not enough values to unpack"
    )
    assert facts["for example"].startswith("1 -> 1 (iteration 10); ")
    assert not any("minibatch-size" in text for text in facts.values())
    assert ended(*crashed, one_row, failures(aaaa=27), status="paused")["try"] == facts["try"]


def test_hints_are_in_the_order_of_what_happened_most() -> None:
    perfect = [NoProposal(iteration=at, reason="all scores perfect") for at in range(1, 9)]
    empty = [NoProposal(iteration=at, reason="no new text") for at in range(9, 43)]
    no_text, no_rows = "another propose_new_texts: ", "training rows that the seed fails on: "
    facts = ended(*perfect, *empty)
    assert facts["try"] == f"{no_text}34 of 42 iterations had no new text"
    assert facts["or"] == f"{no_rows}8 of 42 iterations had perfect scores already"
    facts = ended(*perfect, *empty[:3])
    assert (facts["try"][: len(no_rows)], facts["or"][: len(no_text)]) == (no_rows, no_text)
    failed = [StepFailed(iteration=at, step="propose_new_texts", message="no luck") for at in range(1, 3)]
    assert ended(*perfect, *failed)["try"].startswith(no_rows)


def test_proposals_with_the_texts_of_their_parent_are_named_as_such() -> None:
    same = [rejected(at, 1, 1).model_copy(update={"unchanged": True}) for at in range(1, 17)]
    facts = ended(*same, begin=started(server="evolverpc 1 (typescript)"))
    assert facts["because"] == "16 with the texts of their parent"
    assert facts["try"] == "another proposeNewTexts: 16 of 16 proposals had the texts of their parent, unchanged"
    assert "or" not in facts


def test_a_proposer_that_returns_one_text_again_and_again_is_named_as_the_cause() -> None:
    alike = [rejected(at, 1, at % 2).model_copy(update={"candidate": "aaaa"}) for at in range(1, 10)]
    facts = ended(*alike)
    assert facts["try"] == "another propose_new_texts: all 9 proposals that were not kept have the same texts"
    assert "or" not in facts, "larger minibatches and more metric calls would end in the same way"
    other = rejected(10, 1, 1).model_copy(update={"candidate": "bbbb"})
    assert "same texts" not in ended(*alike, other)["try"]


def test_a_run_in_which_every_score_is_0_asks_for_the_score_function_first() -> None:
    skipped = [NoProposal(iteration=at, reason="no new text") for at in range(1, 32)]
    facts = ended(*skipped, seed=0.0)
    assert facts["try"].startswith("a fix of the score function: every score of this run was 0; ")
    assert facts["or"] == "another propose_new_texts: 31 of 31 iterations had no new text"
    assert "or" not in ended(*(rejected(at, 0, 0) for at in range(1, 12)), seed=0.0)


def test_other_ends_have_no_such_lines() -> None:
    assert ended(candidate(1, 0.5, [0], "b", 1, 30)) == {}
    assert ended(seed=1.0) == {}
    assert ended(rejected(1, 1, 1), status="paused") == {}


def test_iterations_without_anything_to_learn_are_counted_if_they_were_most() -> None:
    def unused(first: int, last: int, score: float = 0.5, **config: Any) -> str | None:
        record = RunRecord()
        skipped = [NoProposal(iteration=at, reason="all scores perfect") for at in range(first, last)]
        finished = Finished(status="completed", metric_calls=60, search_complete=True)
        better = candidate(1, score, [0], "b", 1, 30)
        for event in (
            started(config=config),
            Phase(phase="seed"),
            candidate(0, 0.25, [], "a", 0, 12),
            better,
            *skipped,
            finished,
        ):
            record.apply(event)
        return unused_iterations(record)

    found = unused(2, 32)
    assert found is not None
    assert found.startswith("30 of 31 iterations proposed nothing, as the training rows of their minibatch were right ")
    assert "mean score of the validation rows is 0.5: give more training rows, of the kinds of validation rows" in found
    assert found.endswith(", or end sooner with --patience N")
    assert "patience" not in (unused(2, 32, patience=5) or "")
    assert (unused(2, 32, score=1.0) or "").endswith(
        "while the mean score of the validation rows is 1: end sooner with --patience N"
    )
    assert (unused(2, 32, score=1.0, patience=5) or "").endswith("while the mean score of the validation rows is 1")
    assert unused(40, 70) is None, "most iterations had proposals"
    assert unused(2, 6) is None


def test_without_validation_rows_no_hint_asks_for_rows_like_them() -> None:
    begin = started(splits={"train": 12, "val": 12}, training_only=True)
    facts = ended(candidate(1, 0.25, [0], "b", 0, 24), begin=begin)
    assert facts["because"] == "1 not better on the training rows"
    assert facts["try"] == "--reflection-minibatch-size 6: 1 proposal improved a minibatch only"
