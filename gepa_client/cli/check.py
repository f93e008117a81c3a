"""`gepa-client check`: try a server on a few rows; a table for people, one JSON object for machines."""

import asyncio
import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gepa_client.cli import flags
from gepa_client.cli.console import fail, make, safe, safe_line, say
from gepa_client.run.config import RunConfig
from gepa_client.run.settings import SettingsError, load

if TYPE_CHECKING:
    from gepa_client.check.outcome import CheckReport, Timing

COMMAND = flags.SettingsCommand
EXAMPLES = 15
USAGE = 2
STOPPED = 130
ERRORS_IN_FULL = 5
MARKS = {
    "ok": "[green]ok[/]",
    "warning": "[yellow]warning[/]",
    "failed": "[bold red]failed[/]",
    "skipped": "[dim]skipped[/]",
}
SETTINGS = (
    "token_file",
    "allow_insecure",
    "trainset",
    "max_metric_calls",
    "reflection_lm",
    "reflection_minibatch_size",
)


def check(url: str | None, config: Path | None, json_output: bool, examples: int, **given: Any) -> None:
    """Try a server on a few training rows and say what a run would meet, and take.

    Ends with 0 when a run may start, 1 when it should not, 2 when the server cannot be reached.
    """
    try:
        settings = load(config, {"url": url, **given}, must_end=False)
    except SettingsError as error:
        fail(str(error))
        raise typer.Exit(USAGE) from error
    raise typer.Exit(look(settings, json_output=json_output, examples=examples))


def look(settings: RunConfig, *, json_output: bool, brief: bool = False, examples: int = EXAMPLES) -> int:
    """Check and show; returns the exit status. `brief`: a check that found nothing takes one line."""
    from gepa_client.check.check import check as tried  # aiohttp comes with it, which `--help` does not need
    from gepa_client.errors import ClientError
    from protocol.errors import RpcError

    try:
        report = asyncio.run(tried(settings, examples))
    except (SettingsError, ClientError, RpcError) as error:
        fail(str(error))
        return USAGE
    except KeyboardInterrupt:
        fail("stopped by hand")
        return STOPPED
    if json_output:
        print(json.dumps({"event": "check", "passed": report.passed, **report.model_dump(mode="json")}), flush=True)
    elif brief and report.passed:
        _show_briefly(make(), report)
    else:
        _show(make(), report)
        if brief:
            fail("the check failed, so no run was started; --no-check starts one all the same")
    return 0 if report.passed else 1 if report.reached else USAGE


def _show_briefly(console: Console, report: "CheckReport") -> None:
    for step in report.steps:
        if step.verdict == "warning":
            say(console, f"[yellow]check:[/] {safe(step.message)}")
    if report.timing is not None:
        say(console, f"check: {len(report.examples)} rows tried; {_timing(report.timing)}")


def _show(console: Console, report: "CheckReport") -> None:
    if report.program is not None:
        console.print(
            f"[bold]{safe_line(report.program)}[/] behind {safe_line(report.server or '')}, {safe_line(report.url)}"
        )
    if report.examples:
        console.print(_table(report))
    failed = [example for example in report.examples if example.error is not None]
    for example in failed[:ERRORS_IN_FULL]:
        where = f"[bold red]row {example.row}[/] (id {safe_line(example.id, 80)})"
        say(console, f"\n{where}: {safe(example.error or '')}")
        if example.details:
            say(console, f"[dim]{safe(example.details.rstrip())}[/]")
    if len(failed) > ERRORS_IN_FULL:
        console.print(f"\n... and {len(failed) - ERRORS_IN_FULL} more errors")
    if report.examples:
        console.print()
    for step in report.steps:
        say(console, f"{MARKS[step.verdict]} {step.name}: {safe(step.message)}")
        if step.details and step.verdict == "failed":
            say(console, f"[dim]{safe(step.details.rstrip())}[/]")
    if report.timing is not None:
        say(console, f"\n{_timing(report.timing)}")
    if report.passed:
        budget = report.timing.budget if report.timing else 1000
        console.print(f"next: gepa-client optimize {safe(report.url)} --max-metric-calls {budget}")


def _table(report: "CheckReport") -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("row", justify="right")
    table.add_column("score", justify="right")
    table.add_column("seconds", justify="right")
    table.add_column("failed at")
    table.add_column("input", no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column("output", no_wrap=True, overflow="ellipsis", ratio=1)
    for example in report.examples:
        table.add_row(
            str(example.row),
            "-" if example.score is None else f"{example.score:.3g}",
            f"{example.seconds:.3f}",
            f"[red]{escape(example.step)}[/]" if example.step else "",
            _cell(example.input, "(stays on the server)"),
            _cell(example.output, ""),
        )
    return table


def _cell(value: Any, absent: str) -> str:
    if value is None:
        return f"[dim]{absent}[/]"
    return safe_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), 200)


def _timing(timing: "Timing") -> str:
    quick, slow = (_span(seconds) for seconds in timing.run_s)
    would_take = quick if quick == slow else f"{quick} to {slow}"
    told = (
        f"{_span(timing.example_s)} per example (slowest {_span(timing.slowest_s)}), {timing.at_once} at once; "
        f"{timing.budget:,} metric calls would take {would_take}, reflection not counted"
    )
    if timing.run_usd is not None and timing.example_usd is not None:
        told += f", and cost about ${timing.run_usd:.2f} (${timing.example_usd:.4f} each)"
    return told


def _span(seconds: float) -> str:
    if seconds < 0.1:
        return f"{seconds * 1000:.2g} ms"
    if seconds < 120:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _with_flags() -> None:
    """Give the command its signature: typer reads the flags from it."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    own = [
        ("url", None, Annotated[str | None, typer.Argument(help="The server; may be in the configuration file.")]),
        ("config", None, Annotated[Path | None, typer.Option("--config", "-c", help="Settings of the run, as TOML.")]),
        ("json_output", False, Annotated[bool, typer.Option("--json", help="Print one JSON object.")]),
        ("examples", EXAMPLES, Annotated[int, typer.Option(min=1, max=100, help="Training rows to try.")]),
    ]
    check.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            *(inspect.Parameter(name, keyword, default=default, annotation=kind) for name, default, kind in own),
            *flags.parameters(SETTINGS),
        ]
    )


_with_flags()
