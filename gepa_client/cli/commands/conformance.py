"""`evolverpc conformance URL`: check whether a server in any language keeps the contract, or a program over stdio."""

import asyncio
from collections import Counter
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from evolverpc_common.display_text import counted, plain
from gepa_client.cli.arguments import AllowInsecure, TokenFile
from gepa_client.conformance import CheckOutcome, ConformanceReport, Level, Verdict, load_checks, run_conformance
from gepa_client.errors import ClientError
from gepa_client.transport.address import find_token, refused
from gepa_client.views.console import LONGEST, USAGE, echo, fail, make_console, print_json, refuse, safe_line
from protocol.errors import Unauthorized

MARKS = {
    Verdict.PASSED: "[green]pass[/]",
    Verdict.FAILED: "[bold red]FAIL[/]",
    Verdict.WARNED: "[yellow]warn[/]",
    Verdict.SKIPPED: "[dim]skip[/]",
    Verdict.NOT_VERIFIED: "[dim]none[/]",
}
UNCHECKED = (Verdict.SKIPPED, Verdict.NOT_VERIFIED)

BROKEN = 1
"""The exit status if a MUST is broken."""

NOT_VERIFIED = 3
"""The exit status if nothing is broken, and some of what applies was not checked."""

OWN_PROGRAMS = {"python": "evolverpc serve --conformance", "typescript": "npx evolverpc-conformance"}
"""Language of a server -> the command that serves the conformance program in it."""

SECTION = "the conformance program (docs/protocol.md#the-conformance-program)"


def conformance(
    url: Annotated[str | None, typer.Argument(help="The server, with or without /rpc.")] = None,
    command: Annotated[
        str | None, typer.Option("--command", metavar="'CMD ARGS'", help="In place of a URL: a program over stdio.")
    ] = None,
    level: Annotated[
        Level, typer.Option("--level", help="`core`: what every server does; `full`: its capabilities too.")
    ] = "full",
    token_file: TokenFile = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Run only checks whose id begins so; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON report and nothing else.")] = False,
    show_skipped: Annotated[bool, typer.Option("--show-skipped", help="List the checks that did not run.")] = False,
    allow_insecure: AllowInsecure = False,
) -> None:
    """Run every conformance check that applies, those of core first.

    Exit with 0 if all of it is verified, with 1 if a MUST is broken, with 2 if the server is lost or no check could
    run, with 3 if nothing is broken and something was not verified, such as what needs the conformance program.
    """
    endpoint = url or command
    if endpoint is None or (url and command):
        refuse("give the URL of a server, or the command of a program over stdio as --command 'CMD ARGS'")
    checks = tuple(check for check in load_checks() if not only or check.id.startswith(tuple(only)))
    if not checks:
        refuse(f"no check has an id that begins with {' or '.join(only or [])}")
    console = make_console()

    def show(outcome: CheckOutcome) -> None:
        if not as_json and (show_skipped or outcome.verdict not in UNCHECKED):
            _show_outcome(console, outcome)

    try:
        report = asyncio.run(
            run_conformance(
                endpoint,
                find_token(None, token_file) if url else None,
                checks=checks,
                level=level,
                over="http" if url else "stdio",
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
        _show_counts(console, report, own=OWN_PROGRAMS.get(report.language) if url else None, chosen=bool(only))
    if report.lost:
        fail(report.lost)
        raise typer.Exit(USAGE)
    if not report.conforms:
        raise typer.Exit(BROKEN if report.count(Verdict.FAILED) else NOT_VERIFIED)


def _show_outcome(console: Console, outcome: CheckOutcome) -> None:
    """Print a line for a check, and below it what it found if it did not pass."""
    check = outcome.check
    line = f"{MARKS[outcome.verdict]} {check.id:<36} {safe_line(check.title)}"
    if outcome.verdict is Verdict.PASSED and console.is_terminal:
        console.print(line, no_wrap=True, overflow="ellipsis")
    else:
        echo(console, line)
    if outcome.verdict in UNCHECKED:
        echo(console, f"     {safe_line(outcome.reason)}")
    elif outcome.verdict is not Verdict.PASSED:
        of_step = outcome.reason.partition(": ")[0] if outcome.reason.startswith("step ") else ""
        echo(console, f"     expected: {safe_line(outcome.expected, 600)}{f' ({of_step})' if of_step else ''}")
        echo(console, f"     found:    {safe_line(outcome.found, 600)}")
        echo(console, f"     page:     {outcome.page} ({check.level.upper()})")
        if request := outcome.request():  # one line on a narrow terminal too, to be pasted
            console.print(Text(f"     request:  {plain(request, limit=LONGEST)}"), soft_wrap=True)


def _show_counts(console: Console, report: ConformanceReport, *, own: str | None, chosen: bool) -> None:
    """Print the end of the report; `own`: the command that serves the conformance program in the server's language."""
    echo(console, "")
    echo(console, safe_line(report.described))
    skipped = [outcome.check for outcome in report.outcomes if outcome.verdict is Verdict.SKIPPED]
    absent = sorted({name for check in skipped for name in check.requires} - report.parts.keys())
    if skipped:
        echo(console, f"{len(skipped)} do not apply{'; not offered: ' if absent else ''}{', '.join(absent)}")
    reasons = Counter(o.reason for o in report.outcomes if o.verdict is Verdict.NOT_VERIFIED)
    for reason, count in reasons.most_common():
        echo(console, f"{count} not verified: {safe_line(reason)}")
    if report.count(Verdict.WARNED):
        echo(console, f"{report.count(Verdict.WARNED)} warned")
    echo(console, report.counts)
    if report.skipped_of_core and report.language and not report.lost:
        serve = f"serve the conformance program with its own limits (`{own}`)" if own else f"write {SECTION}"
        checks = counted(report.skipped_of_core, "check")
        echo(console, f"{checks} of core did not run. To verify core, {serve} and check that.")
    style = "green" if report.conforms else "bold yellow" if not report.count(Verdict.FAILED) else "bold red"
    echo(console, f"[{style}]{'of the checks chosen: ' if chosen else ''}{safe_line(report.last_line, 2000)}[/]")
