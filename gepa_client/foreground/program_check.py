"""A check of a program on a few rows, and its report on the terminal: a table, two lines, or one JSON object."""

from collections.abc import Callable
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from evolverpc_common.display_text import counted
from evolverpc_common.settings.sources import SettingsError
from gepa_client.check.check_report import (
    IGNORABLE,
    CheckedExample,
    CheckReport,
    ComparedResult,
    brief_lines,
    named_rows,
)
from gepa_client.check.run_forecast import CENT, RunEstimate, about_usd, run_estimate, span
from gepa_client.errors import ClientError, summary
from gepa_client.report.calling_program import blocked_hint, by_typescript, where_of
from gepa_client.settings.run_config import CALL_BUDGETS, CHECKED_ROWS, MOST_CHECKED_ROWS, RunConfig
from gepa_client.settings.run_settings import SUGGESTED_METRIC_CALLS
from gepa_client.settings.shell_arguments import GivenArguments
from gepa_client.views.console import (
    STOPPED,
    USAGE,
    echo,
    echo_next,
    fail,
    make_console,
    plain_table,
    print_json,
    safe,
    safe_line,
    value_cell,
)
from protocol.errors import RpcError

ERRORS_IN_FULL = 5
MARKS = {
    "ok": "[green]ok[/]",
    "warning": "[yellow]warning[/]",
    "failed": "[bold red]failed[/]",
    "skipped": "[dim]skipped[/]",
}


def run_check(
    settings: RunConfig,
    typed: GivenArguments,
    *,
    json_output: bool,
    brief: bool = False,
    examples: int = CHECKED_ROWS,
    repeats: int = 1,
    verbose: bool = False,
    on_failure: Callable[[str], None] = fail,
) -> int:
    """Check and print the report; return the exit status.

    `brief`: a check without findings takes two lines. `repeats`: evaluations of each row; one by default, so that the
    check before a run costs no more than trying the rows. `verbose`: with what the program wrote for each row.
    `on_failure`: gets why no run may start.
    """
    from gepa_client.check.server_check import check_server  # aiohttp comes with it, which `--help` does not need
    from gepa_client.transport.event_loop import run_to_end

    console = make_console()
    latest = ""

    def trying(rows: str) -> None:
        nonlocal latest
        latest = f", {rows}"
        if not json_output:
            echo(console, f"[dim]check: {rows}[/]")

    try:
        report = run_to_end(check_server(settings, examples, trying, repeats=repeats, alone=not brief))
    except (SettingsError, ClientError, RpcError) as error:
        on_failure(summary(error))
        return USAGE
    except KeyboardInterrupt:
        fail(f"stopped by hand during the check{latest}")
        return STOPPED
    if json_output:
        print_json({"event": "check", "passed": report.passed, **report.model_dump(mode="json")})
    elif brief and report.passed:
        for text, is_warning in brief_lines(report):
            echo(console, f"{'[yellow]check:[/]' if is_warning else 'check:'} {safe(text)}")
    else:
        _show(console, report, settings.repo or report.url, brief=brief)
        if hint := next(filter(None, (blocked_hint(each.error or "") for each in report.examples)), ""):
            echo(console, f"\n[bold red]{hint}[/]")
        for example in report.examples if verbose else ():
            if example.log and example.error is None:  # else the error shows what the row wrote
                echo(console, f"\n[bold]row {example.row} wrote:[/]\n{safe(example.log.rstrip())}")
        if report.passed:
            echo_next(console, _next(report, typed))
        elif not brief:
            echo(console, f"No run would be started{_otherwise(report, typed)}.")
        if brief:
            for_program = on_failure is not fail or by_typescript.get()
            findings = _findings(report) if for_program else ""
            on_failure(f"the check failed, so no run was started{_otherwise(report, typed)}{findings}")
    if brief and report.passed and _lacks_price(settings, report):
        typed_again = typed.command("optimize", max_metric_calls=SUGGESTED_METRIC_CALLS)
        on_failure(
            "the rows tried came without a price, so `max_cost_usd` cannot hold, and nothing else ends this run; no "
            f"run was started: give `max_metric_calls`, as in\n{typed_again}"
        )
        return USAGE
    if brief and any(step.name == "rows" and step.verdict == "failed" for step in report.steps):
        return USAGE  # the settings name rows that cannot be used
    return 0 if report.passed else 1 if report.reached else USAGE


def _findings(report: CheckReport) -> str:
    """Return the failed steps, and the first error of a row, for the exception that a program gets."""
    errors = [f"row {each.row}: {each.error}" for each in report.examples if each.error is not None]
    failed = [f"{step.name}: {step.message}" for step in report.steps if step.verdict == "failed"]
    return "".join(f"\n{line}" for line in [*failed, *errors[:1]])


def _otherwise(report: CheckReport, typed: GivenArguments) -> str:
    """Return how to start a run in spite of the failed steps, with the other checks if possible; "" if none can do."""

    def call(value: str) -> str:
        return f'`check: "{value}"`' if by_typescript.get() else f"`{typed.command('optimize', check=value)}`"

    failed = {step.name for step in report.steps if step.verdict == "failed"}
    if failed & {"score function", "rows", "code"} or report.program is None:
        return ""
    if failed <= IGNORABLE:
        return f"; {call('warn')} starts one all the same, after all other checks"
    return f"; {call('off')} starts one all the same"


def _lacks_price(settings: RunConfig, report: CheckReport) -> bool:
    """Return whether only a limit on cost ends the run and the examples had no price.

    A reflection model, or a scoring server, may yet report prices.
    """
    priced = any(example.cost_usd is not None for example in report.examples)
    others = settings.reflection_lm is not None or settings.score_with
    return settings.ends_by_money_alone and bool(report.examples) and not priced and not others


def _show(console: Console, report: CheckReport, where: str, *, brief: bool) -> None:
    """Print the rows and the steps. `brief`: only steps with a finding, the failed ones last."""
    if report.program is not None:
        runs = where_of(report.server or "", report.language or "")
        echo(console, f"[bold]{safe_line(report.program)}[/] {safe_line(runs)}, {safe_line(where)}")
    unscored = any(step.name == "score function" and step.verdict == "failed" for step in report.steps)
    if report.examples and not unscored:  # rows without a score show nothing of what is missing
        console.print(_table(report.examples[:MOST_CHECKED_ROWS]))
        if len(report.examples) > MOST_CHECKED_ROWS:
            echo(console, f"... and {counted(len(report.examples) - MOST_CHECKED_ROWS, 'more row')}")
    _show_errors(console, report.examples)
    if report.compared:
        console.print()
        console.print(_compared_table(report.compared))
    if report.examples and not unscored:
        console.print()
    steps = report.steps
    if brief:
        steps = [step for verdict in ("warning", "failed") for step in report.steps if step.verdict == verdict]
    for step in steps:
        echo(console, f"{MARKS[step.verdict]} {step.name}: {safe(step.message)}")
        if step.details and step.verdict == "failed":
            echo(console, f"[dim]{safe(step.details.rstrip())}[/]")
    if report.timing is not None:
        echo(console, f"\n{run_estimate(report.timing, report.evolve)}")
        echo(console, _of_proposals(report.timing))
    if report.noise is not None:
        echo(console, f"{report.noise.about_power}; {report.noise.about_needs}")


def _show_errors(console: Console, examples: list[CheckedExample]) -> None:
    """Print each different error once, with its rows."""
    alike: dict[tuple[str, str | None], list[CheckedExample]] = {}
    for example in examples:
        if example.error is not None:
            alike.setdefault((example.error, example.details), []).append(example)
    for (error, further), failed in list(alike.items())[:ERRORS_IN_FULL]:
        first_id = f" (id {safe_line(failed[0].id, 80)})" if len(failed) == 1 else ""
        where = f"{named_rows([example.row for example in failed])}[/]{first_id}"
        echo(console, f"\n[bold red]{where}: {safe(error)}")
        if further:
            echo(console, f"[dim]{safe(further.rstrip())}[/]")
        if failed[0].log:
            echo(console, f"[dim]row {failed[0].row} wrote:\n{safe(failed[0].log.rstrip())}[/]")
    left = sum(map(len, list(alike.values())[ERRORS_IN_FULL:]))
    if left:
        echo(console, f"\n... and {counted(left, 'more error')}")


def _next(report: CheckReport, typed: GivenArguments) -> str:
    budget = report.timing.budget if report.timing else None
    is_given = any(typed.given.get(name) is not None for name in CALL_BUDGETS)
    more: dict[str, Any] = {} if budget is None or is_given else {"max_metric_calls": budget}
    if report.perfect_score is not None:
        more["perfect_score"] = report.perfect_score
    command = typed.command("optimize", **more)
    no_proposer = any(step.name == "proposals" and step.verdict == "warning" for step in report.steps)
    return f"{command} --reflection-lm MODEL" if no_proposer else command


def _table(examples: list[CheckedExample]) -> Table:
    columns = {
        "row": [str(example.row) for example in examples],
        "score": ["-" if example.score is None else f"{example.score:.3g}" for example in examples],
        "time": [span(example.seconds) for example in examples],
        "failed at": [example.step or "" for example in examples],
    }
    if not any(columns["failed at"]):
        del columns["failed at"]
    table = plain_table()
    for name, cells in columns.items():
        width = max(map(len, [name, *cells]))  # without it these too give way to long inputs and outputs
        side: Literal["left", "right"] = "left" if name == "failed at" else "right"
        table.add_column(name, justify=side, no_wrap=True, min_width=width)
    for name in ("input", "output"):
        table.add_column(name, ratio=1)  # may shrink, as a column of `no_wrap` may not; its cells stay on one line
    for example, facts in zip(examples, zip(*columns.values(), strict=True), strict=True):
        table.add_row(*facts, value_cell(example.input, "(stays on the server)"), value_cell(example.output, ""))
    return table


def _compared_table(compared: list[ComparedResult]) -> Table:
    """Return the table of the rows by which servers were compared: the first server's result above each other one's."""
    table = plain_table("row", "server", right=("score",))
    table.add_column("output", ratio=1)
    table.add_column("compared", no_wrap=True, min_width=len("different: output"))
    for result in compared:
        is_first = result.server == compared[0].server
        table.add_row(
            safe_line(result.row, 12) if is_first else "",
            safe_line(result.server, 40),
            result.status if result.score is None else f"{result.score:.3g}",
            value_cell(result.output, ""),
            f"[bold red]different: {result.differs}[/]" if result.differs else "" if is_first else "[green]same[/]",
        )
    return table


def _of_proposals(timing: RunEstimate) -> str:
    """Return what a run of some proposals takes."""
    low, high = timing.proposals_calls
    text = f"{timing.proposals} proposals take {low:,} evaluations of a row if none is accepted, {high:,} if all are"
    if timing.proposals_usd is not None:
        least, most = timing.proposals_usd
        text += f", {about_usd(most)}" if most < CENT else f", about ${least:.2f} to ${most:.2f}"
    return text
