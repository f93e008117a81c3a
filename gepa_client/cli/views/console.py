"""Terminals: where output goes, and how text from elsewhere becomes safe to print."""

import sys

from rich.console import Console
from rich.markup import escape

from evolverpc_common.display_text import line, plain

LONGEST = 20_000
"""Characters of a single text from elsewhere that are shown."""


def make(*, stderr: bool = False) -> Console:
    """A console that guesses nothing: no emoji codes, no highlighting of what only looks like a number."""
    return Console(file=sys.stderr if stderr else sys.stdout, highlight=False, emoji=False)


def say(console: Console, markup: str) -> None:
    """Print markup, wrapped between words on a terminal and not at all elsewhere."""
    console.print(markup, soft_wrap=not console.is_terminal)


def safe(text: str) -> str:
    """Text from a server, a file or an exception, for use inside rich markup; line breaks stay."""
    return escape(plain(text, limit=LONGEST))


def safe_line(text: str, limit: int = 300) -> str:
    """The same, as one line of at most `limit` characters."""
    return escape(line(text, limit))


def fail(message: str) -> None:
    """Print what went wrong to stderr."""
    say(make(stderr=True), f"[bold red]error:[/] {safe(message)}")
