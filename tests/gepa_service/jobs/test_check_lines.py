"""What the log of a job states of a check that passed."""

from typing import Any

import pytest

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
EXAMPLE = (
    "check: 0 rows tried; 2.0 s per call of an example (slowest 3.0 s), up to 2 at once over all servers and processes"
)


def lines(timing: RunEstimate | None, *steps: CheckStep) -> list[str]:
    return list(check_lines(CheckReport.model_construct(steps=list(steps), examples=[], timing=timing, noise=None)))


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        (
            {},
            f"{EXAMPLE}; 300 metric calls would take 5 min to 2.5 h, reflection not counted, "
            "and cost about $3.00 ($0.0100 each)",
        ),
        (
            {"run_s": (9.0, 9.0), "run_usd": None},
            f"{EXAMPLE}; 300 metric calls would take 9.0 s, reflection not counted",
        ),
        ({"budget": None, "run_s": None}, f"{EXAMPLE}, $0.0100 each"),
    ],
)
def test_the_budget_is_stated_in_time_and_money(changed: dict[str, Any], line: str) -> None:
    assert lines(RunEstimate(**TIMING | changed)) == [line]


def test_warnings_are_stated_and_steps_without_findings_are_not() -> None:
    steps = (
        CheckStep(name="rows", verdict="ok", message="6 rows"),
        CheckStep(name="scores", verdict="warning", message="all alike"),
    )
    assert lines(None, *steps) == ["check: warning: all alike"]


def test_a_run_that_changes_code_does_not_count_those_changes() -> None:
    report = CheckReport.model_construct(steps=[], examples=[], timing=RunEstimate(**TIMING), noise=None, evolve="both")
    assert "reflection and changes of code not counted" in next(check_lines(report))
