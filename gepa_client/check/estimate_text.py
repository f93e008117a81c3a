"""How the times and costs of an estimate are written, and a check that passed in a few lines."""

from collections.abc import Iterator

from evolverpc_common.display_text import counted
from gepa_client.check.check_report import CheckReport, RunEstimate
from gepa_client.settings.run_settings import Evolve

CENT = 0.01
"""The least amount that is printed as a figure."""


def span(seconds: float) -> str:
    """Return `32 ms`, `3.2 s`, `5 min`, `2.5 h`."""
    if seconds < 0.0995:
        return f"{_two_digits(seconds * 1000)} ms"
    if seconds < 120:
        return f"{_two_digits(seconds)} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def about_usd(usd: float) -> str:
    """Return `about $0.25`, `less than $0.01`."""
    return f"about ${usd:.2f}" if usd >= CENT or usd == 0 else "less than $0.01"


def run_estimate(timing: RunEstimate, evolve: Evolve) -> str:
    """Return what an example takes, and what the budget takes and costs. `evolve`: what a run would change."""
    text = f"{span(timing.example_s)} per call of an example{' that is evaluated again' if timing.warm else ''} "
    text += f"(slowest {span(timing.slowest_s)}), "
    text += f"up to {timing.at_once} at once over all servers and processes"
    if timing.budget is None or timing.run_s is None:
        return text + (f", {_each(timing.example_usd)}" if timing.example_usd is not None else "")
    quick, slow = (span(seconds) for seconds in timing.run_s)
    uncounted = "reflection" if evolve == "prompts" else "reflection and changes of code"
    would_take = quick if quick == slow else f"{quick} to {slow}"
    if not timing.warm:
        would_take += " at the pace of these first calls, which include the program's start"
    if timing.again_s is not None:
        would_take += f" (evaluated again, {span(timing.again_s)} per call: they may be cached)"
    text += f"; {timing.budget:,} metric calls would take {would_take}, {uncounted} not counted"
    if timing.run_usd is not None and timing.example_usd is not None:
        text += f", and cost {about_usd(timing.run_usd)} ({_each(timing.example_usd)})"
    return text


def brief_lines(report: CheckReport) -> Iterator[tuple[str, bool]]:
    """Yield what a run should know of a check that passed, and whether it is a warning."""
    for step in report.steps:
        if step.verdict == "warning":
            yield step.message, True
    if report.timing is not None:
        yield f"{counted(len(report.examples), 'row')} tried; {run_estimate(report.timing, report.evolve)}", False
    if report.noise is not None:
        yield report.noise.about_power, False


def _each(usd: float) -> str:
    return f"${usd:.4f} each" if usd >= 0.0001 or usd == 0 else "less than $0.0001 each"


def _two_digits(number: float) -> str:
    """Return `0.25`, `3.2`, `32`, `110`: never an exponent."""
    return f"{number:.{2 if number < 0.995 else 1 if number < 9.95 else 0}f}"
