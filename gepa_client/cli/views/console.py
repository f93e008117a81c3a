"""Terminals: where output goes, and how text from elsewhere becomes safe to print."""

import json
import sys
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.markup import escape

from evolverpc_common.display_text import line, plain, plain_json
from gepa_client.sandboxing.session_interface import Log

LONGEST = 20_000
"""Characters of a single text from elsewhere that are shown."""


def make_console(*, stderr: bool = False) -> Console:
    """A console that guesses nothing: no emoji codes, no highlighting of what only looks like a number."""
    return Console(file=sys.stderr if stderr else sys.stdout, highlight=False, emoji=False)


def echo(console: Console, markup: str) -> None:
    """Print markup, wrapped between words on a terminal and not at all elsewhere."""
    console.print(markup, soft_wrap=not console.is_terminal)


def safe(text: str) -> str:
    """Text from a server, a file or an exception, for use inside rich markup; line breaks stay."""
    return escape(plain(text, limit=LONGEST))


def log_markup(log: Log) -> str:
    """Return the markup of a line about sandboxes."""
    return f"[bold yellow]warning:[/] {safe(log.text)}" if log.is_warning else f"[dim]{safe(log.text)}[/]"


def safe_line(text: str, limit: int = 300) -> str:
    """The same, as one line of at most `limit` characters."""
    return escape(line(text, limit))


def fail(message: str) -> None:
    """Print what went wrong to stderr."""
    echo(make_console(stderr=True), f"[bold red]error:[/] {safe(message)}")


def print_json(value: Any, *, indent: int | None = None) -> None:
    """Print JSON to stdout with control and bidirectional characters as escapes of JSON."""
    print(plain_json(json.dumps(value, ensure_ascii=False, indent=indent)), flush=True)


def money(usd: float, unpriced: int = 0) -> str:
    """`$0.0123`, `$0.0123 + 12 unpriced`, `unknown (12 unpriced)`: what is not known is said, and never zero."""
    known = f"${usd:,.2f}" if usd >= 100 else f"${usd:.4f}" if usd else "$0"
    if not unpriced:
        return known
    return f"{known} + {unpriced:,} unpriced" if usd else f"unknown ({unpriced:,} unpriced)"


def counted(number: int, what: str) -> str:
    """`1 row`, `1,200 rows`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def seconds_since(moment: str) -> float | None:
    """Seconds from an ISO 8601 time to now, for people only; None where it cannot be read."""
    try:
        then = datetime.fromisoformat(moment)
    except ValueError:
        return None
    return max(0.0, (datetime.now(UTC) - then.replace(tzinfo=then.tzinfo or UTC)).total_seconds())


def duration(seconds: float | None) -> str:
    """`3 s`, `12 min`, `5 h`, `9 d`."""
    if seconds is None:
        return "?"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
