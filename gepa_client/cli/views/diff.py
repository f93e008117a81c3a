"""A unified diff of code on a terminal: coloured, nothing in it obeyed, cut where it is too long."""

from rich.console import Console

from gepa_client.cli.views.console import safe, say
from gepa_client.evolution.patches import LineKind, lines

LONGEST_DIFF = 400
"""Lines of a diff that are shown, unless in full."""

LONGEST_LINE = 300
"""Characters of a line that are shown, unless in full."""

_STYLES: dict[LineKind, str] = {"head": "bold", "at": "cyan", "add": "green", "del": "red"}


def show_diff(console: Console, diff: str, *, full: bool = False, more: str = "--json has them") -> None:
    """Print it; `more` says where the lines are that were cut."""
    told = list(lines(diff))
    for line in told if full else told[:LONGEST_DIFF]:
        text = line.text if full or len(line.text) <= LONGEST_LINE else f"{line.text[: LONGEST_LINE - 1]}…"
        style = _STYLES.get(line.kind)
        say(console, f"[{style}]{safe(text)}[/]" if style else safe(text))
    if len(told) > LONGEST_DIFF and not full:
        say(console, f"[dim]... and {len(told) - LONGEST_DIFF:,} lines more; {more}[/]")


def counted(added: int, removed: int, files: int) -> str:
    """`+12 -3 in 2 files`, as markup."""
    return f"[green]+{added:,}[/] [red]-{removed:,}[/] in {files:,} file{'' if files == 1 else 's'}"
