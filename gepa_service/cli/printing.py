"""What the commands print: errors, warnings, and lines for people."""

import sys
from typing import NoReturn

import typer

from evolverpc_common.display_text import plain

USAGE = 2


def refuse(message: str, status: int = USAGE) -> NoReturn:
    """Print what is wrong, and exit."""
    print(f"error: {plain(message)}", file=sys.stderr, flush=True)
    raise typer.Exit(status)


def warn(message: str) -> None:
    """Print a warning."""
    print(f"warning: {plain(message)}", file=sys.stderr, flush=True)
