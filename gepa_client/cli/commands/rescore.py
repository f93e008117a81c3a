"""`evolverpc rescore RUN --with URL`: another scorer over the recorded outputs of a run; no program runs."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from evolverpc_common.display_text import command
from gepa_client.cli.arguments import AllowInsecure, AsJson, RunName, StoreUrl, TokenFile
from gepa_client.cli.commands.store_access import open_cli_run
from gepa_client.views.console import echo, echo_next, make_console, plain_table, print_json, refuse, safe_line

if TYPE_CHECKING:
    from gepa_client.analysis.rescoring import RescoringResult

REASONS_SHOWN = 5


def rescore(
    run: RunName,
    url: Annotated[str, typer.Option("--with", metavar="URL", help="The server that scores (capability `scoring`).")],
    token_file: TokenFile = None,
    allow_insecure: AllowInsecure = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write all scores here, as JSON.")
    ] = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Score the recorded outputs of a run again; report the best candidate by the old and by the new scores."""
    from gepa_client.analysis.rescoring import rescore_run  # aiohttp comes with it, which `--help` does not need
    from gepa_client.fleet import Address

    console = make_console()
    with open_cli_run(store, run) as (kept, found):
        if output is not None and output.exists():
            refuse(f"{output} is there already, and nothing is written over: give another --output")
        scorer = Address(url, token_file=token_file, allow_insecure=allow_insecure)
        with _progress(console, quiet=as_json) as on_progress:
            done = asyncio.run(rescore_run(kept, found, scorer, on_progress))
        document = done.as_json()
        if output is not None:
            try:
                with output.open("x", encoding="utf-8") as file:
                    json.dump(document, file, ensure_ascii=False, indent=2)
            except OSError as error:
                refuse(f"{output} cannot be written: {error.strerror or error}")
        if as_json:
            print_json(document, indent=2)
            return
        _show(console, done)
        if output is not None:
            echo(console, f"all scores: {safe_line(str(output))}")
        best = done.best_by_new
        more = ["--candidate", str(best)] if best is not None else []
        echo_next(console, command("show", found.id, *more, store=store))


@contextmanager
def _progress(console: Console, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """Show progress on a terminal, and nothing elsewhere."""
    with Progress(console=console, transient=True, disable=quiet or not console.is_terminal) as progress:
        task = progress.add_task("scoring", total=None)
        yield lambda done, outputs: progress.update(task, completed=done, total=outputs)


def _show(console: Console, done: "RescoringResult") -> None:
    table = plain_table(right=("candidate", "old mean", "new mean", "scored", "failed", "no output"))
    for one in done.candidates:
        table.add_row(
            str(one.index),
            _mean(one.old, one.index == done.best_by_old),
            _mean(one.new, one.index == done.best_by_new),
            *(f"{one.count(status):,}" if one.count(status) else "" for status in ("scored", "failed", "missing")),
        )
    console.print(table)
    if done.reasons:
        text = f"the scorer failed on {len(done.reasons):,} outputs, which score {done.failure_score:g}; for instance"
        echo(console, f"[yellow]{text}:[/]")
        for reason in list(dict.fromkeys(done.reasons))[:REASONS_SHOWN]:
            echo(console, f"  {safe_line(reason, 600)}")
    if any(one.count("failed") for one in done.candidates):
        echo(console, f"failed: if the program or the scorer fails, a row scores {done.failure_score:g}")
    if any(one.count("missing") for one in done.candidates):
        echo(
            console,
            "[yellow]no output:[/] nothing is recorded for these rows, and they count in neither mean; only candidates "
            "with the most rows are compared by the new scores",
        )
    if done.best_by_new is None:
        echo(console, "[yellow]no output of this run is recorded: nothing was scored[/]")
    elif done.best_by_old == done.best_by_new:
        echo(console, f"best by the old and by the new scores: candidate [bold]{done.best_by_new}[/]")
    else:
        echo(
            console,
            f"best by the old scores: candidate [bold]{done.best_by_old}[/]; "
            f"by the new ones: candidate [bold]{done.best_by_new}[/]",
        )


def _mean(mean: float | None, best: bool) -> str:
    text = "-" if mean is None else f"{mean:.4f}"
    return f"[bold green]{text}[/]" if best else text
