"""A manual mutation on the terminal: its progress, the diff and the outputs, or why it was rejected."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from evolverpc_common.display_text import counted, money
from gepa_client.evolution.candidate_names import short_commit_name
from gepa_client.evolution.manual_mutation import ManualMutation, Result, score_of
from gepa_client.evolution.text_diffs import totals
from gepa_client.journal.answer_entries import Rejection
from gepa_client.views.candidate_view import diff_size, show_diff
from gepa_client.views.console import CELL, cut_cell, echo, plain_table, safe, safe_line, value_cell
from protocol import ApplyMutationResult, Usage

ADVICE = {
    "agent": "see the log; the agent and its key must be where the server runs; --agent-timeout-s gives it more time",
    "empty": "nothing would differ: describe the change differently, and name with --location where to look first",
    "paths": "ask for a change that stays within what the server's --allow and --deny permit",
    "size": "ask for a smaller change",
    "environment": "the dependencies it names could not be installed: see the log",
    "build": "the server's --build-command fails on it: quote the log in the next request",
    "check": "the server's --check-command fails on it: quote the log in the next request",
    "start": "the program does not start with it: quote the log in the next request",
    "push": "the server could not push to the remote that its --push names",
}
"""What to do about a rejection, by its stage."""

EDIT_ADVICE = {
    "patch": "make the patch against the commit of the candidate that --candidate names, else of the server's seed",
    "texts": "texts are written into the program by its function `write_texts(candidate)`, or into its seed_candidate "
    "file: give it one of them, or make this a change request",
    "merge": "the two changed the same lines: ask for one of the changes again, on top of the other's candidate",
}
"""What to do about a rejection at stage `edit`, by the mutation's kind."""


@contextmanager
def mutation_progress(console: Console, *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Yield the function that prints a progress message, unless it repeats the last one."""
    began, last = time.monotonic(), ""

    def report(message: str) -> None:
        nonlocal last
        if not quiet and message != last:
            last = message
            echo(console, f"[dim]{time.monotonic() - began:7.1f} s[/]  {safe_line(message)}")

    with console.status("at work") if console.is_terminal and not quiet else nullcontext():
        yield report


def show_made(console: Console, made: ApplyMutationResult, kind: str) -> None:
    """Print the diff, its size, and the cost of a mutation that an agent may have made."""
    echo(console, "")
    show_diff(console, made.diff)
    branch = safe_line(short_commit_name(made.branch, made.commit) if made.branch else made.commit, 200)
    echo(console, f"\n[bold]{branch}[/]: {diff_size(*totals(made.diff), len(made.files))}")
    echo(console, f"[dim]files[/]    {safe_line(', '.join(made.files), 1000)}")
    if made.summary:
        echo(console, f"[dim]summary[/]  {safe(made.summary.strip())}")
    if made.usage is not None or kind == "change_request":
        echo(console, f"[dim]cost[/]     {cost(made.usage)}")
    for label, names in (("added", made.components_added), ("removed", made.components_removed)):
        if names:
            echo(console, f"[dim]components {label}[/]  {safe_line(', '.join(names), 1000)}")
    echo(console, "")


def show_rows(console: Console, step: ManualMutation) -> None:
    """Print each row before and after."""
    console.print()
    console.print(_table(step))
    _show_errors(console, step)
    before, after = step.mean("before"), step.mean("after")
    if before is not None and after is not None:
        colour = "green" if after > before else "red" if after < before else "default"
        mean = f"mean of {counted(len(step.tried), 'row')}"
        echo(console, f"\nscore {before:.4g} -> [bold {colour}]{after:.4g}[/], {mean}")


def show_rejection(console: Console, rejected: Rejection, kind: str) -> None:
    """Print the stage, the reason, the log tail, the rejected diff, and what to do; `kind`: the mutation's."""
    echo(console, f"[bold red]rejected at stage {safe_line(rejected.stage, 40)}:[/] {safe(rejected.reason)}")
    if rejected.log_tail:
        echo(console, f"\n[dim]the end of the log:\n{safe(rejected.log_tail.rstrip())}[/]")
    if rejected.diff:
        echo(console, "\n[dim]what was refused:[/]")
        show_diff(console, rejected.diff)
    echo(console, "\nnothing was changed" if rejected.stage != "empty" else "")
    if rejected.usage is not None:
        echo(console, f"[dim]cost[/]  {cost(rejected.usage)}")
    advice = EDIT_ADVICE.get(kind) if rejected.stage == "edit" else ADVICE.get(rejected.stage)
    if advice is not None:
        echo(console, f"what to do: {advice}")


def cost(usage: Usage | None) -> str:
    """Return `$0.0123, 1,200 tokens in, 300 out`, or what is unknown."""
    if usage is None:
        return "not known"
    parts = [money(usage.cost_usd) if usage.cost_usd is not None else "price not known"]
    if usage.input_tokens is not None and usage.output_tokens is not None:
        parts.append(f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out")
    return ", ".join(parts)


def _table(step: ManualMutation) -> Table:
    table = plain_table()
    for name in ("row", "before", "after"):
        table.add_column(name, justify="right", no_wrap=True, max_width=20, overflow="ellipsis")
    for name in ("input", "output before", "output after"):
        table.add_column(name, ratio=1)
    for tried in step.tried:
        table.add_row(
            safe_line(tried.row.id, 80),
            _score(tried.before),
            _score(tried.after),
            value_cell(tried.row.data, "(stays on the server)"),
            _outcome(tried.before),
            _outcome(tried.after),
        )
    return table


def _score(result: Result) -> str:
    score = score_of(result)
    return "-" if score is None else f"{score:.4g}"


def _outcome(result: Result) -> Text:
    error = result.get("error")
    if error:
        return cut_cell(f"[red]{safe_line(_error_text(error), CELL)}[/]")
    return value_cell(result.get("output"), "")


def _show_errors(console: Console, step: ManualMutation) -> None:
    """Print why rows fail with the new candidate, each different reason once."""
    shown: set[str] = set()
    for tried in step.tried:
        error = tried.after.get("error")
        if not error or (text := _error_text(error)) in shown:
            continue
        shown.add(text)
        echo(console, f"\n[bold red]row {safe_line(tried.row.id, 80)}, after:[/] {safe(text)}")
        for further in (error.get("traceback"), error.get("log")):
            if further:
                echo(console, f"[dim]{safe(further.rstrip())}[/]")


def _error_text(error: Mapping[str, Any]) -> str:
    return f"{error.get('type')}: {error.get('message')}"
