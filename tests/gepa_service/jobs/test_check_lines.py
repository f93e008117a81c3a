"""What the log of a job states of a check that passed."""

from typing import Any

from gepa_client.check.check_report import CheckReport, CheckStep, RunEstimate
from gepa_service.jobs.check_lines import check_lines

TIMING: dict[str, Any] = {
    "example_s": 2.0,
    "slowest_s": 3.0,
    "all_s": 4.0,
    "at_once": 2,
    "budget": 300,
    "run_s": (300.0, 9000.0),
    "example_usd": 0.01,
    "run_usd": 3.0,
    "proposals": 20,
    "proposals_calls": (100, 200),
}


def test_the_budget_is_stated_in_time_and_money() -> None:
    [line] = lines(RunEstimate(**TIMING))
    assert "300 metric calls would take 5 min to 2.5 h" in line
    assert "about $3.00" in line


def lines(timing: RunEstimate | None, *steps: CheckStep) -> list[str]:
    return list(check_lines(CheckReport.model_construct(steps=list(steps), examples=[], timing=timing, noise=None)))


def test_warnings_are_stated_and_steps_without_findings_are_not() -> None:
    steps = (
        CheckStep(name="rows", verdict="ok", message="6 rows"),
        CheckStep(name="scores", verdict="warning", message="all alike"),
    )
    assert lines(None, *steps) == ["check: warning: all alike"]
