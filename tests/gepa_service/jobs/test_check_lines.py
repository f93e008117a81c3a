"""What the log of a job states of a check that passed."""

from gepa_client.check.check_report import CheckReport, CheckStep, RunEstimate
from gepa_service.jobs.check_lines import check_lines


def lines(timing: RunEstimate | None, *steps: CheckStep) -> list[str]:
    return list(check_lines(CheckReport.model_construct(steps=list(steps), examples=[], timing=timing, noise=None)))


def test_warnings_are_stated_and_steps_without_findings_are_not() -> None:
    steps = (
        CheckStep(name="rows", verdict="ok", message="6 rows"),
        CheckStep(name="scores", verdict="warning", message="all alike"),
    )
    assert lines(None, *steps) == ["check: warning: all alike"]
