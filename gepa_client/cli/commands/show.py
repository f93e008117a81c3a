"""`evolverpc show RUN`: a run's facts, its candidates as a tree, outcomes of its calls, cost and changes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from evolverpc_common.display_text import command, counted, duration, one_line, seconds_since
from gepa_client.analysis.explanation import explain, explain_candidate
from gepa_client.analysis.failed_examples import ROWS_LISTED, failed_examples
from gepa_client.analysis.mutation_outcomes import code_history
from gepa_client.analysis.proposals import ProposalHistory, RecordedProposals
from gepa_client.analysis.steered import steered
from gepa_client.cli.arguments import AsJson, RunName, StoreUrl
from gepa_client.cli.commands.runs import COLOURS
from gepa_client.cli.commands.store_access import next_command, open_cli_run, run_as_json
from gepa_client.evolution.candidate_names import code_label
from gepa_client.journal.entries import RESUMED_BY, SEARCH, CandidateRecord, Spending, StoredRun
from gepa_client.journal.history import discovery, end_of, recorded_events, row_counts, validation_rows
from gepa_client.journal.run_events import FailedExamples
from gepa_client.journal.store import Store, named_store
from gepa_client.page.event_log import EventLog
from gepa_client.page.run_state import certified, summary_of
from gepa_client.page.search_reader import SearchReader
from gepa_client.report import event_words as words
from gepa_client.report import summary_fields as fields
from gepa_client.report.calling_program import use_of
from gepa_client.run.output_folder import CERTIFICATE
from gepa_client.run.recorded_run import view_of
from gepa_client.run.run_view import RunView
from gepa_client.views.candidate_view import candidate_tree, show_candidate, show_changes, show_moved_rows
from gepa_client.views.console import (
    LONGEST,
    echo,
    echo_facts,
    echo_next,
    fail,
    make_console,
    print_json,
    refuse,
    safe,
    safe_line,
)

ELSEWHERE = frozenset({"name", "output", "store", "max_metric_calls", RESUMED_BY})
"""Settings that have a line of their own, or do not describe the run."""

SHOWN = 80
"""Characters of one value that are shown."""

LONGEST_FACT = 2000


def show(
    run: RunName,
    candidate: Annotated[
        int | None,
        typer.Option("--candidate", min=0, metavar="K", help="Its texts, what it changed, and its score on each row."),
    ] = None,
    failures: Annotated[
        bool,
        typer.Option("--failures", help="Examples that failed in the program: types, rows, candidates, tracebacks."),
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Cut no value and no line of a change.")] = False,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show a run: its candidates as a tree, the outcomes of its calls, its cost, and what the best one changed."""
    if failures and candidate is not None:
        refuse("one at a time: --failures and --candidate were given")
    console = make_console()
    with open_cli_run(store, run) as (kept, found):
        candidates = kept.candidates(found.id)
        if candidate is not None and candidate >= len(candidates):
            there = f"it has 0 to {len(candidates) - 1}" if candidates else "it has none yet"
            refuse(f"run {found.id} has no candidate {candidate}: {there}")
        if as_json:
            print_json(_as_json(kept, found, candidates), indent=2)
            return
        if failures:
            _show_failures(console, found.id, failed_examples(kept, found.id), full=full)
        elif candidate is None:
            _show_run(console, kept, found, candidates, full=full, url=store)
        else:
            code, rows = code_history(kept, found.id, candidates), validation_rows(kept, found.id)
            history = ProposalHistory(kept, found, candidates)
            change = explain_candidate(kept, found, candidates, candidate, history)
            show_candidate(console, candidates, candidate, rows, code, change, history, full=full)
        console.print()
        echo_next(console, next_command(found, store, candidates=bool(candidates)))


def _as_json(store: Store, run: StoredRun, candidates: Sequence[CandidateRecord]) -> dict[str, Any]:
    view, spending = view_of(store, run), store.spending(run.id)
    explained, log = explain(store, run), EventLog()
    SearchReader(store, run.id, log).read_decisions()
    ended = certified(store, run, view) if explained else view
    return {
        **run_as_json(run),
        "discovery": discovery(store, run.id),
        "rows": row_counts(store, run.id),
        "entries": store.parts(run.id),
        **view.as_json(),
        "candidates": [asdict(kept) | {"front": kept.index in view.front} for kept in candidates],
        "spending": [asdict(spent) for spent in spending],
        "spent_usd": sum(spent.cost_usd for spent in spending),
        "unpriced": sum(spent.unpriced for spent in spending),
        "unreported": sum(spent.unreported for spent in spending),
        "steered": [
            {"part": each.part, "number": each.number, **each.entry.model_dump(mode="json")}
            for each in steered(store, run)
        ],
        "requests": [asdict(each) for each in store.requests(run.id)],
        "proposals": log.last_of("proposal"),
        "summary": summary_of(ended, explained).model_dump(mode="json") if explained else None,
        "certificate": ended.certificate.model_dump(mode="json") if ended.certificate else None,
        "explanation": asdict(explained) if explained else None,
        "lost": sum(spent.attempts for spent in spending if spent.outcome in fields.WITHOUT_ANSWER),
    }


def _show_run(
    console: Console,
    store: Store,
    run: StoredRun,
    candidates: Sequence[CandidateRecord],
    *,
    full: bool,
    url: str | None,
) -> None:
    view = view_of(store, run)
    colour = COLOURS.get(run.status, "default")
    echo(console, f"[bold]{safe_line(run.id)}[/] [{colour}]{safe_line(run.status)}[/]")
    for message in view.warnings:
        echo(console, f"[yellow]warning:[/] {safe(message)}")
    echo_facts(console, _run_facts(store, run, view, full=full), LONGEST if full else LONGEST_FACT)
    if candidates:
        scored = f"mean score on {counted(len(candidates[0].scores), f'{view.selection} row')}"
        echo(console, f"\n[bold]candidates[/] [dim]({scored}; at: entries of the journal by then)[/]")
        best = view.best.index if view.best is not None else 0
        console.print(candidate_tree(candidates, set(view.front), best, console.width))
    spending = store.spending(run.id)
    if spending:
        _show_spending(console, spending, running=run.status == "running")
    if view.failed_examples is not None:
        echo(console, f"[dim]rows and tracebacks:[/] {safe_line(command('show', run.id, '--failures', store=url))}")
    for heading, columns, rows in fields.tables(view):
        _show_figures(console, heading.lower(), columns, rows)
    if view.best is not None and view.best.index:
        echo(console, f"\n[bold]the best candidate ({view.best.index}) against the seed[/]")
        show_changes(console, candidates[0], candidates[view.best.index], full=full)
        if (explained := explain(store, run)) is not None and explained.overall is not None:
            show_moved_rows(console, explained.overall, full=full)
    _show_last_rejected(console, store, run, candidates, full=full)
    if view.best is not None and code_label(view.best.texts) is not None:
        echo(console, f"\n[dim]its code, and all attempts:[/] {safe_line(command('branches', run.id, store=url))}")


def _show_last_rejected(
    console: Console, store: Store, run: StoredRun, candidates: Sequence[CandidateRecord], *, full: bool
) -> None:
    """Print what the last proposal changed that was evaluated and not kept, if there is one."""
    proposals = RecordedProposals(recorded_events(store, run.id)).found.values()
    rejected = [each for each in proposals if each.outcome in ("rejected", "raced_out") and each.texts]
    if not rejected or rejected[-1].begun.parent >= len(candidates):
        return
    last = rejected[-1]
    parent = candidates[last.begun.parent]
    where = f"iteration {last.begun.iteration}, against candidate {parent.index}"
    echo(console, f"\n[bold]the last rejected proposal[/] [dim]({where})[/]: {safe_line(last.why)}")
    show_changes(console, parent, replace(parent, texts={**parent.texts, **last.texts}), full=full)


def _show_spending(console: Console, spending: Sequence[Spending], *, running: bool) -> None:
    heading, columns, rows = fields.spending_table(spending)
    _show_figures(console, heading.lower(), columns, rows)
    echo(console, f"in all: {fields.whole_cost(spending)}; {fields.tokens_text(spending)}")
    unpriced, unreported = (sum(getattr(spent, name) for spent in spending) for name in ("unpriced", "unreported"))
    if unreported:
        silent = f"{counted(unreported, 'result')} of the program reported no usage"
        echo(console, f"[dim]{silent}: it calls no model, or calls one in a way that its server does not see[/]")
    if unknown := unpriced - unreported:
        echo(console, f"[yellow]{counted(unknown, 'result')} came without a price: their cost is not in the sum[/]")
    lost = sum(spent.attempts for spent in spending if spent.outcome in ("lost", *(() if running else (None,))))
    if lost:
        echo(console, f"[yellow]{counted(lost, 'attempt')} without a response: their cost is unknown[/]")


def _show_figures(console: Console, heading: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table with a name and numbers in each row."""
    echo(console, f"\n[bold]{heading}[/]")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for at, column in enumerate(columns):
        table.add_column(column, justify="right" if at else "left", no_wrap=at > 0, overflow="fold")
    for name, *figures in rows:
        table.add_row(*(safe_line(cell) for cell in (name, *figures)))
    console.print(table)


def _run_facts(store: Store, run: StoredRun, view: RunView, *, full: bool) -> list[tuple[str, str]]:
    """Return what the record states, and what only the store has, line by line. `full`: no value is cut."""
    named = named_store(store.url)
    waiting, steering = len(store.requests(run.id, waiting=True)), command("steer", "list", run.id, store=named)
    lines = [
        ("name", run.name),
        *fields.summary_facts(view),
        ("iterations", f"{run.counters['iteration']:,}" if run.counters.get("iteration") else None),
        ("gain", _gain(run, named)),
        ("requests", f"{waiting:,} waiting: {steering}" if waiting or view.steered else None),
        ("time", _time(run)),
        ("driven by", run.driver if run.claim.owner is not None else None),
        ("forked from", f"{run.parent['run']} at {run.parent['at']}" if run.parent else None),
        ("settings", _settings(run.config, full=full)),
        ("journal", _journal(store, run)),
        ("results in", run.output),
        (
            "use it",
            use_of(view, run.output, command("branches", run.id, "--check-out", store=named)) if run.output else None,
        ),
    ]
    return [(label, text) for label, text in lines if text]


def _gain(run: StoredRun, store: str | None) -> str | None:
    """Return what the certificate in the run's folder states, and the command that checks it."""
    file = Path(run.output or "") / CERTIFICATE
    if run.output is None or not file.is_file():
        return None
    try:
        statement = json.loads(file.read_text(encoding="utf-8"))["statement"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        fail(f"{file} is not as it was written: {error}")
        return None
    return f"{statement}; `{command('verify', str(file), store=store)}` checks it"


def _time(run: StoredRun) -> str:
    active = run.counters.get("active_seconds")
    worked = f"active for {duration(active)}; " if active is not None else ""
    moments = [
        ("created", run.created if run.started is None else None),
        ("started", run.started),
        (run.status, run.completed),
        ("last sign of life", run.updated if run.completed is None else None),
    ]
    return worked + ", ".join(f"{what} {duration(seconds_since(at))} ago" for what, at in moments if at is not None)


def _journal(store: Store, run: StoredRun) -> str:
    entries, end = store.parts(run.id).get(SEARCH, 0), end_of(store, run.id, SEARCH)
    return f"{entries:,} entries" if entries == end else f"{entries:,} entries, numbered up to {end:,}"


def _settings(config: Mapping[str, Any], *, full: bool) -> str:
    """Return the settings that differ from their defaults: `seed 3, module_selector all`. `full`: no value is cut."""
    texts = {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in fields.changed_settings(config).items()
        if name not in ELSEWHERE
    }
    return ", ".join(f"{name} {text if full else one_line(text, SHOWN)}" for name, text in texts.items())


def _show_failures(console: Console, run_id: str, failed: FailedExamples | None, *, full: bool) -> None:
    """Print every type with its rows, its candidates and the first traceback. `full`: all listed rows."""
    if failed is None:
        echo(console, f"[bold]{safe_line(run_id)}[/]: no example failed in the program")
        return
    counts = safe_line(words.failure_summary(failed), words.LONGEST_FAILURE)
    echo(console, f"[bold]{safe_line(run_id)}[/]: failed examples: {counts}")
    for group in failed.groups:
        echo(console, f"\n[bold red]{safe_line(words.failure_name(group), 200)}[/]")
        echo(
            console,
            safe_line(
                words.failure_places(group, ROWS_LISTED if full else words.FAILURES_NAMED), words.LONGEST_FAILURE
            ),
        )
        if (messages := words.failure_messages(group)) is not None:
            echo(console, safe_line(messages, words.LONGEST_FAILURE))
        message, *traceback = words.first_failure(group).splitlines()
        echo(console, safe(message))
        if traceback:
            echo(console, f"[dim]{safe(chr(10).join(traceback))}[/]")
    if not full and any(group.row_count > words.FAILURES_NAMED for group in failed.groups):
        echo(console, "\n[dim]--full names more rows[/]")
