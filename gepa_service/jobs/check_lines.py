"""What a check that passed states of a job: its warnings, what its budget takes and costs, which gain it can show."""

from collections.abc import Iterator

from evolverpc_common.display_text import counted
from gepa_client.check.check_report import CheckReport, RunEstimate
from gepa_client.check.estimate_text import about_usd, span


def check_lines(report: CheckReport) -> Iterator[str]:
    """Yield the lines for the log of the job."""
    for step in report.steps:
        if step.verdict == "warning":
            yield f"check: warning: {step.message}"
    if report.timing is not None:
        yield f"check: {counted(len(report.examples), 'row')} tried; {_estimate(report.timing)}"
    if report.noise is not None:
        yield f"check: {report.noise.about_power}"


def _estimate(timing: RunEstimate) -> str:
    if timing.budget is None or timing.run_s is None:
        each = "" if timing.example_usd is None else f", ${timing.example_usd:.4f}"
        return f"each takes {span(timing.example_s)}{each}"
    quick, slow = map(span, timing.run_s)
    took = quick if quick == slow else f"{quick} to {slow}"
    cost = "no price is known" if timing.run_usd is None else f"cost {about_usd(timing.run_usd)}"
    return f"{timing.budget:,} metric calls take {took}, {cost}; reflection is not counted"
