"""What a run states of a check that passed."""

from gepa_client.check.check_report import CheckReport, CheckStep, RunEstimate
from gepa_client.check.estimate_text import brief_lines


def lines(timing: RunEstimate | None, *steps: CheckStep) -> list[tuple[str, bool]]:
    return list(brief_lines(CheckReport(url="http://h", steps=list(steps), timing=timing)))


def test_warnings_are_stated_and_steps_without_findings_are_not() -> None:
    steps = (
        CheckStep(name="rows", verdict="ok", message="6 rows"),
        CheckStep(name="scores", verdict="warning", message="all alike"),
    )
    assert lines(None, *steps) == [("all alike", True)]
