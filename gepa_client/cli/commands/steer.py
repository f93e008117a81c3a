"""`evolverpc steer ACTION RUN`: steer a run while it runs, or before it is resumed."""

import contextlib
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from evolverpc_common.display_text import command
from gepa_client.analysis.proposals import RecordedProposals
from gepa_client.analysis.steered import request_text, steered, taken_text, texts_outcomes
from gepa_client.cli.arguments import AsJson, RunName, StoreUrl
from gepa_client.cli.commands.store_access import open_cli_run, resume_call
from gepa_client.errors import SteeringRefused, unreadable
from gepa_client.journal.entries import SteeringRequest, StoredRun
from gepa_client.journal.export_format import mistakes
from gepa_client.journal.history import discovery, recorded_events
from gepa_client.journal.steer_entries import LONGEST_TEXT, AnyAction, action_of, described
from gepa_client.journal.store import Store
from gepa_client.journal.stored_fields import OVER
from gepa_client.steering.user_requests import request
from gepa_client.views.console import echo, echo_next, make_console, print_json, refuse, safe_line
from protocol.code import CODE_COMPONENTS

REFUSED = 1
"""The run refused the request when it came to take it."""

LOOK_EVERY_S = 0.1

APP = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Steer a run: propose a text, pin or drop a candidate, give a hint, set a budget.

    The driver of the run takes a request between two iterations and records it in the journal, so that a steered run
    resumes, replays and forks as it ran. A run that no process drives takes its requests when it is resumed.

    Exit status: 0 if the request was taken or waits, 1 if the run refused it, 2 if it cannot be made.
    """,
)

Wait = Annotated[
    float, typer.Option("--wait", min=0, metavar="SECONDS", help="How long to wait until the run takes the request.")
]
Index = Annotated[int, typer.Argument(metavar="K", min=0, help="The candidate's index.")]
WAIT_S = 5.0


@APP.command()
def propose(
    run: RunName,
    component: Annotated[
        list[str] | None,
        typer.Option("--component", metavar="NAME", help="What the text is of; not needed for a program with one."),
    ] = None,
    text_file: Annotated[
        list[str] | None,
        typer.Option("--text-file", metavar="FILE", help="File with the text, - for stdin; one for each --component."),
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option("--text", metavar="TEXT", help="The text itself; one for each --component.")
    ] = None,
    parent: Annotated[
        int | None, typer.Option("--parent", min=0, metavar="K", help="The candidate it changes; the best by default.")
    ] = None,
    wait: Wait = WAIT_S,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Propose texts of your own.

    They are evaluated as every proposal is: on a minibatch first, then on all validation rows.
    """
    if bool(text_file) == bool(text):
        refuse("give the texts either with --text-file or with --text")
    texts = [_read(name) for name in text_file] if text_file else list(text or ())
    with open_cli_run(store, run) as (kept, found):
        names = component or _only_component(kept, found)
        if len(names) != len(texts) or len(set(names)) != len(names):
            refuse(f"give one text for each component: {len(names)} --component, {len(texts)} texts")
        _ask(
            kept,
            found,
            {"kind": "propose", "texts": dict(zip(names, texts, strict=True)), "parent": parent},
            wait,
            store,
            as_json,
        )


@APP.command()
def withdraw(
    run: RunName,
    request_id: Annotated[str, typer.Argument(metavar="REQUEST", help="Its id: see `evolverpc steer list`.")],
    wait: Wait = WAIT_S,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Withdraw a text of your own that is not evaluated yet."""
    _open_and_ask(run, {"kind": "withdraw", "request": request_id}, wait, store, as_json)


@APP.command()
def pin(run: RunName, candidate: Index, wait: Wait = WAIT_S, store: StoreUrl = None, as_json: AsJson = False) -> None:
    """Make a candidate the parent of every proposal."""
    _open_and_ask(run, {"kind": "pin", "candidate": candidate}, wait, store, as_json)


@APP.command()
def unpin(run: RunName, wait: Wait = WAIT_S, store: StoreUrl = None, as_json: AsJson = False) -> None:
    """Select parents by the run's own strategy again."""
    _open_and_ask(run, {"kind": "unpin"}, wait, store, as_json)


@APP.command()
def drop(run: RunName, candidate: Index, wait: Wait = WAIT_S, store: StoreUrl = None, as_json: AsJson = False) -> None:
    """Leave a candidate out: as a parent, and as the best.

    A fork from before this request has it again.
    """
    _open_and_ask(run, {"kind": "drop", "candidate": candidate}, wait, store, as_json)


@APP.command()
def hint(
    run: RunName,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What the reflection model is to know.")],
    proposals: Annotated[
        int | None,
        typer.Option("--proposals", min=1, metavar="N", help="For the next N proposals only; for all by default."),
    ] = None,
    wait: Wait = WAIT_S,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Add a text to every prompt of reflection.

    It does not reach programs that propose by themselves.
    """
    _open_and_ask(run, {"kind": "hint", "text": text, "proposals": proposals}, wait, store, as_json)


@APP.command()
def clear_hints(run: RunName, wait: Wait = WAIT_S, store: StoreUrl = None, as_json: AsJson = False) -> None:
    """Show no hint any more."""
    _open_and_ask(run, {"kind": "clear_hints"}, wait, store, as_json)


@APP.command()
def budget(
    run: RunName,
    max_metric_calls: Annotated[int | None, typer.Option(min=1, metavar="N", help="Metric calls in all.")] = None,
    max_cost_usd: Annotated[float | None, typer.Option(metavar="USD", help="US dollars in all.")] = None,
    max_seconds: Annotated[float | None, typer.Option(metavar="SECONDS", help="Seconds in all.")] = None,
    wait: Wait = WAIT_S,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Raise or lower limits of a run.

    Each counts from the beginning of the run.
    """
    limits = {"max_metric_calls": max_metric_calls, "max_cost_usd": max_cost_usd, "max_seconds": max_seconds}
    _open_and_ask(run, {"kind": "budget", **limits}, wait, store, as_json)


@APP.command(name="list")
def list_requests(run: RunName, store: StoreUrl = None, as_json: AsJson = False) -> None:
    """List the requests to a run, with their outcomes.

    They are those in its journal, those that it refused, and those that wait.
    """
    with open_cli_run(store, run) as (kept, found):
        queued = kept.requests(found.id)
        recorded = steered(kept, found)
        proposals = RecordedProposals(recorded_events(kept, found.id)).found.values()
        outcomes = texts_outcomes((each.entry for each in recorded), proposals, over=found.status in OVER)
    if as_json:
        taken = [
            {
                "part": each.part,
                "number": each.number,
                **each.entry.model_dump(mode="json"),
                "texts": asdict(outcomes[each.entry.id]) if each.entry.id in outcomes else None,
            }
            for each in recorded
        ]
        print_json({"run": found.id, "taken": taken, "requests": [asdict(each) for each in queued]})
        return
    console = make_console()
    others = [each for each in queued if each.outcome != "taken"]
    if not recorded and not others:
        echo(console, f"{safe_line(found.id)} was not steered")
        return
    for each in recorded:
        entry = each.entry
        outcome = taken_text(each.part, each.number, outcomes.get(entry.id))
        echo(console, _listed(entry.id, described(entry.action), entry.author, entry.created, outcome))
    for asked in others:
        outcome = f"refused: {asked.reason}" if asked.outcome == "refused" else "waits"
        echo(console, _listed(asked.id, request_text(asked), asked.author, asked.created, outcome))


def _listed(request_id: str, what: str, author: str, created: str, outcome: str) -> str:
    """Return a request in one line; its id first and whole, as `steer withdraw` takes it."""
    asked = f"asked by {safe_line(author, 40)} at {safe_line(created[:19])}"
    return f"{safe_line(request_id)}  {safe_line(what, 80)}, {asked}: {safe_line(outcome)}"


def _open_and_ask(run: str, action: dict[str, Any], wait: float, store: str | None, as_json: bool) -> None:
    with open_cli_run(store, run) as (kept, found):
        _ask(kept, found, action, wait, store, as_json)


def _ask(kept: Store, run: StoredRun, action: dict[str, Any], wait: float, store: str | None, as_json: bool) -> None:
    """Queue the request, wait for its outcome while the run is driven, and print it."""
    try:
        asked = request(kept, run.id, _action(action))
    except SteeringRefused as error:
        refuse(str(error))
    until = time.monotonic() + wait
    while asked.outcome is None and run.claim.owner is not None and time.monotonic() < until:
        time.sleep(LOOK_EVERY_S)
        run = kept.run(run.id)  # first: a run that has ended has answered
        asked = next(each for each in kept.requests(run.id) if each.id == asked.id)
    if as_json:
        print_json({"run": run.id, **asdict(asked)})
    else:
        _show(asked, run, store)
    if asked.outcome == "refused":
        raise typer.Exit(REFUSED)


def _show(asked: SteeringRequest, run: StoredRun, store: str | None) -> None:
    console, what = make_console(), safe_line(request_text(asked))
    again = command("steer", "list", run.id, store=store)
    if asked.outcome == "taken":
        then = ", the run will evaluate it" if asked.action.get("kind") == "propose" else ""
        echo(console, f"recorded: {what} (entry {asked.number} of the journal){then}")
    elif asked.outcome == "refused":
        echo(console, f"[yellow]refused:[/] {what}: {safe_line(asked.reason or '')}")
    elif run.claim.owner is None:
        echo(console, f"waiting: {what}; the run is {safe_line(run.status)}, and takes it when it is resumed")
        again = resume_call(run, store)
    else:
        echo(console, f"waiting: {what}; the run takes it when the present iteration ends ({asked.id})")
    echo_next(console, again)


def _action(value: dict[str, Any]) -> AnyAction:
    try:
        return action_of(value)
    except ValidationError as error:
        refuse(mistakes(error, "the request"))


def _only_component(store: Store, run: StoredRun) -> list[str]:
    """Return the program's component if it has one only."""
    declared = discovery(store, run.id)
    names = [
        name for name in (declared or {}).get("program", {}).get("seed_candidate", {}) if name not in CODE_COMPONENTS
    ]
    if len(names) != 1:
        listed = f": the program has {', '.join(names)}" if names else ""
        refuse(f"name what the text is of with --component NAME{listed}")
    return names


def _read(name: str) -> str:
    """Return the text of a file, or of stdin; of one that is too long, enough to be refused."""
    try:
        with contextlib.nullcontext(sys.stdin) if name == "-" else Path(name).open(encoding="utf-8") as file:
            return file.read(LONGEST_TEXT + 1)
    except (OSError, UnicodeDecodeError) as error:
        refuse(unreadable(name, error))
