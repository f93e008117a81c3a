"""A run that ends with its seed gives counts, examples and hints that its record supports."""

from typing import Any

from gepa_client.journal.run_events import (
    Event,
    FailedExamples,
    FailureGroup,
    Finished,
    NoProposal,
    Phase,
    Rejected,
    Started,
    StepFailed,
)
from gepa_client.report.no_improvement import no_improvement
from gepa_client.run.run_view import RunView
from tests.gepa_client.example_records import candidate, started


def ended(*happened: Event, seed: float = 0.25, begin: Started | None = None, **finish: Any) -> dict[str, str]:
    record = RunView()
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
    assert facts["no improvement"] == "6 proposals in 8 iterations; the seed is still the best candidate"
    assert facts["because"] == (
        "3 with the same score on their minibatch, 1 not better on the validation rows, 1 worse on their minibatch, "
        "1 Duplicate of candidate 1, 1 without a proposal (all scores perfect), 1 failed in reflection"
    )
    assert facts["try"] == "the log: reflection failed first with Timeout: no answer"


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
        "a fix of the program, or of `propose_new_texts`: on 9 of 10 proposals the program failed, as with ValueError: "
        "not enough values to unpack"
    )
    assert not any("minibatch_size" in text for text in facts.values())
    assert ended(*crashed, one_row, failures(aaaa=27), status="paused")["try"] == facts["try"]


def test_a_run_in_which_every_score_is_0_asks_for_the_score_function_first() -> None:
    skipped = [NoProposal(iteration=at, reason="no new text", empty=True) for at in range(1, 32)]
    facts = ended(*skipped, seed=0.0)
    assert facts["try"].startswith("a fix of the score function: every score of this run was 0; ")
    assert facts["or"] == "another `propose_new_texts`: 31 of 31 iterations had no new text"
    assert "or" not in ended(*(rejected(at, 0, 0) for at in range(1, 12)), seed=0.0)


def test_other_ends_have_no_such_lines() -> None:
    assert ended(candidate(1, 0.5, [0], "b", 1, 30)) == {}
    assert ended(seed=1.0) == {}
    assert ended(rejected(1, 1, 1), status="paused") == {}
