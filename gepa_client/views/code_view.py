"""The code of a run on a terminal: every mutation that was tried."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from evolverpc_common.display_text import counted
from gepa_client.analysis.mutation_outcomes import CodeHistory, MutationOutcome
from gepa_client.evolution.names import code_label
from gepa_client.views.console import cut_cell, echo, safe_line

REASONS = 10
"""Different reasons for rejections that are shown."""

NAMED = 5
"""Mutations that are named with each."""

REQUEST = 300
"""Characters of a change request's first line that are shown."""


def show_code(console: Console, run_id: str, record: CodeHistory) -> None:
    """Print the list, and the code of seed and best candidate where they differ from it."""
    outcomes = record.outcomes
    statuses = [outcome.status for outcome in outcomes]
    counts = ", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses))
    where = f"; branches evolve/{run_id}/NUMBER" if _named_alike(run_id, record) else ""
    echo(console, f"[bold]{safe_line(run_id)}[/]: {counted(len(outcomes), 'change')} of code, {counts}{where}")
    console.print()
    console.print(_table(run_id, record))
    _show_reasons(console, record)
    if record.seed is not None:
        echo(console, f"\n[dim]seed[/] {safe_line(code_label(record.seed.texts) or '-', 100)} {record.seed.score:.4f}")
    if record.best is not None and record.best_outcome is None:
        echo(console, f"the best candidate ({record.best.index}) runs the seed's code")


def outcome_as_json(record: CodeHistory, outcome: MutationOutcome) -> dict[str, Any]:
    """Return a mutation with everything but its bundle."""
    entry, made, best = outcome.entry, outcome.made, record.best_outcome
    return {
        "number": outcome.number,
        "kind": entry.kind,
        "request": entry.request,
        "location": entry.location,
        "parents": list(outcome.parents),
        "outcome": outcome.status,
        "best": best is not None and best.number == outcome.number,
        "candidates": [kept.index for kept in outcome.kept],
        "score": outcome.score,
        "lines_added": outcome.added,
        "lines_removed": outcome.removed,
        "applied": made.model_dump(mode="json", exclude={"bundle", "candidate"}) if made is not None else None,
        "rejected": entry.rejected.model_dump(mode="json") if entry.rejected is not None else None,
    }


def _named_alike(run_id: str, record: CodeHistory) -> bool:
    """Return whether every branch's name follows from its number; in a fork some belong to the other run."""
    own = f"evolve/{run_id}/"
    made = [(outcome.number, outcome.made.branch) for outcome in record.outcomes if outcome.made is not None]
    return all(branch == f"{own}{number}" for number, branch in made)


def _table(run_id: str, record: CodeHistory) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for name in ("number", "from", "score", "+", "-", "files"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    apart = not _named_alike(run_id, record)
    if apart:
        table.add_column("branch", no_wrap=True)
    table.add_column("change", ratio=1)
    best = record.best_outcome
    for outcome in record.outcomes:
        made = outcome.made
        table.add_row(
            str(outcome.number),
            _starts(outcome.parents),
            "-" if outcome.score is None else f"{outcome.score:.4f}",
            f"{outcome.added:,}" if made is not None else "-",
            f"{outcome.removed:,}" if made is not None else "-",
            str(len(made.files)) if made is not None else "-",
            _outcome(outcome) + (" [bold green]best[/]" if best is not None and best.number == outcome.number else ""),
            *([safe_line((made.branch if made is not None else None) or "-", 140)] if apart else []),
            cut_cell(safe_line(outcome.why, REQUEST)),
        )
    return table


def _outcome(outcome: MutationOutcome) -> str:
    if outcome.kept:
        which = ", ".join(str(kept.index) for kept in outcome.kept[:3]) + (", ..." if len(outcome.kept) > 3 else "")
        return f"[green]kept[/] as {which}"
    if outcome.entry.rejected is not None:
        return f"[red]rejected[/] ({safe_line(outcome.entry.rejected.stage, 20)})"
    return "[dim]dropped[/]"


def _show_reasons(console: Console, record: CodeHistory) -> None:
    """Print why mutations were rejected, each different reason once, the most frequent first."""
    alike: dict[str, list[int]] = {}
    for outcome in record.outcomes:
        if (rejected := outcome.entry.rejected) is not None:
            alike.setdefault(f"{rejected.stage}: {rejected.reason}", []).append(outcome.number)
    reasons = sorted(alike.items(), key=lambda reason: -len(reason[1]))
    for reason, numbers in reasons[:REASONS]:
        which = ", ".join(map(str, numbers[:NAMED])) + (f" and {len(numbers) - NAMED} more" if numbers[NAMED:] else "")
        echo(console, f"[red]rejected[/] at {safe_line(reason)} [dim]({which})[/]")
    if reasons[REASONS:]:
        echo(console, f"[dim]... and {counted(len(reasons) - REASONS, 'other reason')}[/]")


def _starts(parents: Sequence[int | None]) -> str:
    return " + ".join("seed" if parent is None else str(parent) for parent in parents)
