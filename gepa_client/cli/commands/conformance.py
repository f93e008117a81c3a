"""`evolverpc conformance URL`: check whether a server in any language keeps the contract."""

import asyncio
from collections import Counter
from typing import Annotated

import typer
from rich.console import Console

from gepa_client.cli.arguments import AllowInsecure, TokenFile
from gepa_client.conformance import CheckOutcome, ConformanceReport, Verdict, load_checks, run_conformance
from gepa_client.errors import ClientError
from gepa_client.transport.address import find_token, refused
from gepa_client.views.console import echo, make_console, print_json, refuse, safe_line
from protocol.errors import Unauthorized

MARKS = {
    Verdict.PASSED: "[green]pass[/]",
    Verdict.FAILED: "[bold red]FAIL[/]",
    Verdict.WARNED: "[yellow]warn[/]",
    Verdict.SKIPPED: "[dim]skip[/]",
}


def conformance(
    url: Annotated[str, typer.Argument(help="The server, with or without /rpc.")],
    token_file: TokenFile = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Run only checks whose id begins so; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON report and nothing else.")] = False,
    show_skipped: Annotated[bool, typer.Option("--show-skipped", help="List the checks that do not apply.")] = False,
    allow_insecure: AllowInsecure = False,
) -> None:
    """Run every conformance check that applies; exit with 1 if a MUST is broken, with 2 if no check could run."""
    checks = tuple(check for check in load_checks() if not only or check.id.startswith(tuple(only)))
    if not checks:
        refuse(f"no check has an id that begins with {' or '.join(only or [])}")
    console = make_console()

    def show(outcome: CheckOutcome) -> None:
        if not as_json and (show_skipped or outcome.verdict is not Verdict.SKIPPED):
            _show_outcome(console, outcome)

    try:
        token = find_token(None, token_file)
        report = asyncio.run(
            run_conformance(
                url,
                token,
                checks=checks,
                on_outcome=show,
                allow_insecure=allow_insecure,
            )
        )
    except ClientError as error:
        refuse(str(error))
    except Unauthorized:
        refuse(refused(None, token_file))
    if as_json:
        print_json(report.as_json(), indent=2)
    else:
        _show_counts(console, report)
    if not report.conforms:
        raise typer.Exit(1)


def _show_outcome(console: Console, outcome: CheckOutcome) -> None:
    """Print a line for a check, and the reason below it if it did not pass."""
    check = outcome.check
    echo(console, f"{MARKS[outcome.verdict]} {check.id:<36} {safe_line(check.title)}")
    if outcome.reason:
        echo(console, f"     {check.level.upper()} ({check.section}): {safe_line(outcome.reason, 600)}")


def _show_counts(console: Console, report: ConformanceReport) -> None:
    skipped = Counter(outcome.reason for outcome in report.outcomes if outcome.verdict is Verdict.SKIPPED)
    echo(console, "")
    echo(console, safe_line(report.endpoint))
    for reason, count in skipped.most_common():
        echo(console, f"{count} skipped: {safe_line(reason)}")
    if report.count(Verdict.WARNED):
        echo(console, f"{report.count(Verdict.WARNED)} warned")
    echo(console, report.last_line)
