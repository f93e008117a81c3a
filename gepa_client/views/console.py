"""Terminals: consoles, safe text, JSON, numbers as text, how a command is refused, and exit statuses."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from evolverpc_common.display_text import one_line, plain, plain_json
from evolverpc_common.exact_values import readable
from gepa_client.sandboxing.session_interface import Log

STILL_RUNNING = 1
"""The run had not stopped when the wait for it was over."""

DECLINED = 1
"""The user answered no to a question of the command."""

USAGE = 2
"""The command was used wrongly, or asks for something impossible."""

PAUSED = 3
"""The infrastructure failed, or another command paused the run; the same command can succeed later."""

NOT_MET = 4
"""The certificate lacks the verdict that `--require` asks for."""

STOPPED = 130
"""The user stopped the command, or cancelled its run."""


LONGEST = 20_000
"""Characters that are shown of one text of a server, a file or an exception."""

LABEL = 15
"""Columns of the label of a fact, at least."""

CELL = 200
"""Characters of an input or output that are shown in a table."""


def make_console(*, stderr: bool = False) -> Console:
    """Create a console without emoji codes and automatic highlighting; in a notebook it prints plain text too."""
    return Console(file=sys.stderr if stderr else sys.stdout, highlight=False, emoji=False, force_jupyter=False)


def echo(console: Console, markup: str) -> None:
    """Print markup, wrapped between words on a terminal unless it has something to paste, and not at all elsewhere."""
    console.print(markup, soft_wrap=not console.is_terminal or _to_paste(markup))


def _to_paste(text: str) -> bool:
    """Return whether a text has code or an address: a terminal that wraps it by itself copies it as one line."""
    return "`" in text or "://" in text


def echo_next(console: Console, command: str, label: str = "next:") -> None:
    """Print a command on one line, to paste: a terminal that is too narrow wraps it, and copies it as one line."""
    console.print(Text(f"{label} {plain(command, limit=LONGEST)}"), soft_wrap=True)


def echo_facts(console: Console, facts: Sequence[tuple[str, str]], limit: int) -> None:
    """Print a line for each label and text, at most `limit` characters; a terminal wraps it beside its label."""
    width = max([LABEL, *(len(label) for label, _ in facts)])
    if not console.is_terminal:
        for label, text in facts:
            echo(console, f"{label:<{width}} {safe_line(text, limit)}")
        return
    for label, text in facts:
        if _to_paste(text):
            echo(console, f"[dim]{label:<{width}}[/] {safe_line(text, limit)}")
            continue
        table = Table.grid(padding=(0, 1))
        table.add_column(style="dim", no_wrap=True, min_width=width)
        table.add_column(overflow="fold")
        table.add_row(label, safe_line(text, limit))
        console.print(table)


def safe(text: str) -> str:
    """Escape a text of a server, a file or an exception for rich markup; line breaks stay."""
    return escape(plain(text, limit=LONGEST))


def log_markup(log: Log) -> str:
    """Return the markup of a line about sandboxes."""
    return f"[bold yellow]warning:[/] {safe(log.text)}" if log.is_warning else f"[dim]{safe(log.text)}[/]"


def safe_line(text: str, limit: int = 300) -> str:
    """Escape a text as one line of at most `limit` characters."""
    return escape(one_line(text, limit))


def fail(message: str) -> None:
    """Print an error to stderr."""
    echo(make_console(stderr=True), f"[bold red]error:[/] {safe(message)}")


def refuse(message: str, status: int = USAGE) -> NoReturn:
    """Print what is wrong and exit with 2, or with another status."""
    fail(message)
    raise typer.Exit(status)


def plain_table(*left: str, right: Iterable[str] = ()) -> Table:
    """Return a table without lines; its columns `left` and then `right`, aligned so, are never wrapped."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in left:
        table.add_column(name, no_wrap=True)
    for name in right:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def cut_cell(markup: str) -> Text:
    """Return the text of a table's cell that is cut instead of wrapped."""
    text = Text.from_markup(markup, overflow="ellipsis")
    text.no_wrap = True
    return text


def value_cell(value: Any, absent: str) -> Text:
    """Return the cell of an input or output; `absent` in its place if it is None."""
    value = readable(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return cut_cell(f"[dim]{absent}[/]" if value is None else safe_line(text, CELL))


def print_json(value: Any, *, indent: int | None = None) -> None:
    """Print JSON to stdout, with control and bidirectional characters escaped."""
    print(plain_json(json.dumps(value, ensure_ascii=False, indent=indent)), flush=True)
