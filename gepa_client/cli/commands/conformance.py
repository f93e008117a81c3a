"""`gepa-client conformance URL`: check whether a server in any language keeps the contract."""

import asyncio
from typing import Annotated

import typer

from gepa_client.cli.arguments import AllowInsecure, TokenFile
from gepa_client.cli.views.console import echo, make_console, print_json, refuse, safe_line
from gepa_client.conformance import Check, CheckOutcome, ConformanceReport, Verdict, load_checks, run_conformance
from gepa_client.errors import ClientError
from gepa_client.transport.address import find_token, refused
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
    printer = None if as_json else _Printer(show_skipped=show_skipped)
    try:
        token = find_token(None, token_file)
        report = asyncio.run(
            run_conformance(
                url,
                token,
                checks=checks,
                on_outcome=printer.outcome if printer else None,
                allow_insecure=allow_insecure,
            )
        )
    except ClientError as error:
        refuse(str(error))
    except Unauthorized:
        refuse(refused(None, token_file))
    if printer is None:
        print_json(report.as_json(), indent=2)
    else:
        printer.end(report)
    if not report.conforms:
        raise typer.Exit(1)


class _Printer:
    """Prints a line for each check as it ends, the reason below a failed one, and the counts."""

    def __init__(self, *, show_skipped: bool) -> None:
        self._console = make_console()
        self._show_skipped = show_skipped

    def outcome(self, outcome: CheckOutcome) -> None:
        if outcome.verdict is Verdict.SKIPPED and not self._show_skipped:
            return
        check = outcome.check
        echo(self._console, f"{MARKS[outcome.verdict]} {check.id:<36} {safe_line(check.title)}")
        if outcome.reason:
            echo(self._console, f"     {_duty(check)}: {safe_line(outcome.reason, 600)}")

    def end(self, report: ConformanceReport) -> None:
        skipped = [outcome for outcome in report.outcomes if outcome.verdict is Verdict.SKIPPED]
        reasons: dict[str, int] = {}
        for outcome in skipped:
            reasons[outcome.reason] = reasons.get(outcome.reason, 0) + 1
        echo(self._console, "")
        echo(self._console, safe_line(report.endpoint))
        for reason, count in sorted(reasons.items(), key=lambda entry: -entry[1]):
            echo(self._console, f"{count} skipped: {safe_line(reason)}")
        if report.count(Verdict.WARNED):
            echo(self._console, f"{report.count(Verdict.WARNED)} warned")
        echo(self._console, report.last_line)


def _duty(check: Check) -> str:
    return f"{check.level.upper()} ({check.section})"
