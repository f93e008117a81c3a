"""Failed examples of a stored run on a terminal."""

from rich.console import Console

from gepa_client.analysis.failed_examples import ROWS_LISTED
from gepa_client.cli.views.console import safe, safe_line, say
from gepa_client.journal.run_events import FailedExamples
from gepa_client.report.failure_lines import LONGEST, NAMED, fact, first, name, where


def show_failures(console: Console, run_id: str, failed: FailedExamples | None, *, full: bool) -> None:
    """Every type with its rows and candidates and the first traceback. `full`: all rows that are listed."""
    if failed is None:
        say(console, f"[bold]{safe_line(run_id)}[/]: no example failed in the program")
        return
    say(console, f"[bold]{safe_line(run_id)}[/]: failed examples: {safe_line(fact(failed), LONGEST)}")
    for group in failed.groups:
        say(console, f"\n[bold red]{safe_line(name(group), 200)}[/]")
        say(console, safe_line(where(group, ROWS_LISTED if full else NAMED), LONGEST))
        told, *traceback = first(group).splitlines()
        say(console, safe(told))
        if traceback:
            say(console, f"[dim]{safe(chr(10).join(traceback))}[/]")
    if not full and any(group.row_count > NAMED for group in failed.groups):
        say(console, "\n[dim]--full names more rows[/]")
