"""`evolverpc conformance URL`: check whether a server in any language keeps the contract, or a program over stdio."""

import asyncio
import shlex
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from evolverpc_common.display_text import plain
from gepa_client.cli.arguments import AllowInsecure, TokenFile
from gepa_client.conformance import CORE, CheckOutcome, ConformanceReport, Level, Verdict, load_checks, run_conformance
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


def conformance(
    url: Annotated[str | None, typer.Argument(help="The server, with or without /rpc.")] = None,
    command: Annotated[
        str | None,
        typer.Option("--command", metavar="'CMD ARGS'", help="In place of a URL: a program over stdio, served here."),
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

    A program over stdio is served by `evolverpc serve --conformance --command`, and checked in what it does itself.
    It is also started alone, to see whether it exits.
    """
    if (url is None) == (command is None):
        refuse("give the URL of a server, or the command of a program over stdio as --command 'CMD ARGS'")
    checks = tuple(
        check for check in load_checks("http" if url else "stdio") if not only or check.id.startswith(tuple(only))
    )
    if not checks:
        refuse(f"no check has an id that begins with {' or '.join(only or [])}")
    console = make_console()

    def show(outcome: CheckOutcome) -> None:
        if not as_json and (show_skipped or outcome.verdict not in UNCHECKED):
            _show_outcome(console, outcome, pasted=url is not None)

    try:
        with _endpoint(url, command or "", token_file) as (address, token):
            running = run_conformance(
                address,
                token,
                command=shlex.split(command or ""),
                checks=checks,
                level=level,
                on_outcome=show,
                allow_insecure=allow_insecure,
            )
            report = asyncio.run(running)
    except ClientError as error:
        refuse(str(error))
    except Unauthorized:
        refuse(refused(None, token_file))
    if as_json:
        print_json(report.as_json(), indent=2)
    else:
        _show_counts(console, report, chosen=bool(only))
    if report.lost:
        fail(report.lost)
        raise typer.Exit(USAGE)
    if not report.conforms:
        raise typer.Exit(BROKEN if report.count(Verdict.FAILED) else NOT_VERIFIED)


@contextmanager
def _endpoint(url: str | None, command: str, token_file: Path | None) -> Iterator[tuple[str, str | None]]:
    """Yield URL and token of the server; without a URL, of one that serves the program of `command` for the block."""
    if url is not None:
        yield url, find_token(None, token_file)
        return
    from sandbox_runtime import ServerFailed, running_server  # which `--help` does not need

    serve = [sys.executable, "-P", "-m", "rpc_server", "--conformance", "--command"]
    try:
        with running_server([*serve, *shlex.split(command)]) as server:
            yield server.url, server.token
    except (ServerFailed, ValueError) as error:
        refuse(f"{command}: {error}")


def _show_outcome(console: Console, outcome: CheckOutcome, *, pasted: bool) -> None:
    """Print a line for a check, and below it what it found if it did not pass, with its request if it can be `pasted`.

    A server that was started for the checks is gone when they have ended.
    """
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
        if pasted and (request := outcome.request()):  # one line on a narrow terminal too, to be pasted
            console.print(Text(f"     request:  {plain(request, limit=LONGEST)}"), soft_wrap=True)


def _show_counts(console: Console, report: ConformanceReport, *, chosen: bool) -> None:
    """Print the end of the report."""
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
    if report.parts.get(CORE) is Verdict.NOT_VERIFIED and not report.lost:
        echo(
            console,
            "what your program cannot show needs the conformance program on the same kind of server: "
            "`evolverpc serve --conformance`, or docs/protocol.md#the-conformance-program for a server of your own",
        )
    style = "green" if report.conforms else "bold yellow" if not report.count(Verdict.FAILED) else "bold red"
    echo(console, f"[{style}]{'of the checks chosen: ' if chosen else ''}{safe_line(report.last_line, 2000)}[/]")
