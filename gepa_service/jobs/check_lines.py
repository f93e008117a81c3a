"""What a check that passed states of a job: its warnings, what its budget takes and costs, which gain it can show."""

from collections.abc import Iterator

from evolverpc_common.display_text import counted
from gepa_client.check.check_report import CheckReport
from gepa_client.check.estimate_text import run_estimate


def check_lines(report: CheckReport) -> Iterator[str]:
    """Yield the lines for the log of the job."""
    for step in report.steps:
        if step.verdict == "warning":
            yield f"check: warning: {step.message}"
    if report.timing is not None:
        yield f"check: {counted(len(report.examples), 'row')} tried; {run_estimate(report.timing, report.evolve)}"
    if report.noise is not None:
        yield f"check: {report.noise.about_power}"
