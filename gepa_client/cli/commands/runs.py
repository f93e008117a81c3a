"""`evolverpc runs`: every run of a store, newest first, with its progress and its cost."""

import re
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import JustifyMethod
from rich.table import Table

from evolverpc_common.display_text import command, duration, seconds_since, without_password
from gepa_client.cli.arguments import StoreUrl
from gepa_client.cli.commands.store_access import (
    FIRST_COMMAND,
    is_absent,
    is_silent,
    next_command,
    open_cli_store,
    resume_call,
    run_as_json,
)
from gepa_client.journal.entries import RunStatus, StoredRun
from gepa_client.journal.history import seed_score
from gepa_client.journal.store import default_store
from gepa_client.views.console import echo, echo_next, make_console, print_json, safe_line

COLOURS = {
    "pending": "dim",
    "running": "cyan",
    "paused": "yellow",
    "completed": "green",
    "failed": "red",
    "cancelled": "yellow",
}
UNBOUNDED = 400
"""Columns without a terminal."""

LONGEST_NAME = 40
WIDE, WIDE_ALONE = 110, ("iter", "started")
"""The width of a terminal from which on these columns are shown."""

LEFT = ("run", "name", "status", "score")
"""Columns of texts; numbers stand at the right."""

UNREADABLE = "?"

_OWN_PART = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}(?=-|$)")


def runs(
    store: StoreUrl = None,
    status: Annotated[RunStatus | None, typer.Option("--status", help="Only runs of this status.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """List the runs of a store, the newest first."""
    console = make_console()
    found: list[StoredRun] = []
    seeds: dict[str, Any] = {}
    if store is not None or not is_absent(store):  # the store that was named is there; the usual one comes with a run
        with open_cli_store(store) as kept:
            found = [run for run in kept.runs() if status is None or run.status == status]
            seeds = {run.id: None if run.best is None else seed_score(kept, run) for run in found}
    if as_json:
        for run in found:
            print_json(run_as_json(run) | {"seed_score": seeds[run.id]})
    elif found:
        if not console.is_terminal:
            console.width = UNBOUNDED
        console.print(run_table(found, seeds, console.width))
        for run in found:
            if is_silent(run):
                again = resume_call(run, store)
                silent = f"{run.id} gave no sign of life for {duration(seconds_since(run.updated))}"
                echo(console, f"[yellow]{safe_line(silent)}:[/] {safe_line(again)} takes it over")
        newest = found[0]
        can_resume = newest.status in ("pending", "paused")
        following = next_command(newest, store) if can_resume else command("show", newest.id, store=store)
        echo_next(console, following)
    else:
        which = f"no {status} run" if status else "no runs"
        echo(console, f"{which} in {safe_line(without_password(default_store(store)))}")
        again = command("runs", store=store) if status else FIRST_COMMAND
        echo_next(console, again)


def run_table(found: Sequence[StoredRun], seeds: dict[str, Any], width: int) -> Table:
    """Build the table for so many columns of text; names alone are shortened."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    rows = [_cells(run, seeds[run.id]) for run in found]
    shown = [column for column in rows[0] if width >= WIDE or column not in WIDE_ALONE]
    for column in shown:
        justify: JustifyMethod = "left" if column in LEFT else "right"
        table.add_column(column, justify=justify, no_wrap=column != "name", overflow="ellipsis")
    for cells in rows:
        table.add_row(*(cells[column] for column in shown))
    return table


def _cells(run: StoredRun, seed: Any) -> dict[str, str]:
    """Return the cells of a run by column; its times as how long ago."""
    return {
        "run": safe_line(_short_id(run)),
        "name": safe_line(run.name or "", LONGEST_NAME),
        "status": f"[{COLOURS.get(run.status, 'default')}]{safe_line(run.status)}[/]",
        "score": _score(run, seed),
        "iter": _number(run.counters.get("iteration")),
        "calls": _calls(run),
        "cost": _cost(run.counters),
        "started": _ago(run.started),
        "ended": _ago(run.completed),
    }


def _ago(moment: str | None) -> str:
    return "-" if moment is None else f"{duration(seconds_since(moment))} ago"


def _short_id(run: StoredRun) -> str:
    """Return the id without the name in it, which has a column of its own; commands take it as well."""
    own = _OWN_PART.match(run.id) if run.name else None
    return own.group() if own else run.id


def _score(run: StoredRun, seed: Any) -> str:
    if run.best is None or seed is None:
        return "-"
    return f"{_figure(seed, '.2f')} -> {_figure(run.best.get('score'), '.2f')}"


def _number(value: Any) -> str:
    return "-" if value is None else _figure(value, ",")


def _calls(run: StoredRun) -> str:
    calls, budget = run.counters.get("metric_calls"), run.config.get("max_metric_calls")
    return _number(calls) + (f"/{_figure(budget, ',')}" if budget is not None else "")


def _cost(counters: dict[str, Any]) -> str:
    spent, unpriced = counters.get("spent_usd"), counters.get("unpriced")
    if spent is None:
        return "-"
    if unpriced and unpriced != counters.get("unreported"):
        return f"${_figure(spent, '.2f')}+?" if spent else "?"
    if not spent:
        return "none reported" if unpriced else "-"
    return f"${_figure(spent, '.2f')}"


def _figure(value: Any, form: str) -> str:
    """Return a number as text, or `?` for any other value: one damaged run hides no others."""
    return format(value, form) if isinstance(value, int | float) and not isinstance(value, bool) else UNREADABLE
