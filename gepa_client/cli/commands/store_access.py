"""What commands over stored runs share: their arguments, the store, the run, and its next command."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from evolverpc_common.display_text import command, seconds_since, shell_line
from gepa_client.errors import ClientError, StoreUnavailable, summary
from gepa_client.journal.entries import StoredRun
from gepa_client.journal.store import Store, default_store, find_run, looks_like_a_url, open_store
from gepa_client.views.console import DECLINED, STOPPED, USAGE, echo, make_console, refuse
from protocol.errors import RpcError

SILENT_S = 60.0
"""Seconds without a heartbeat after which commands report a driver as gone: several leases."""

FIRST_COMMAND = shell_line(["optimize", "--help"])
"""It names what a first run needs: a server of the user's own program, and rows."""


def confirm(question: str, *, no_answer: str, declined: str) -> None:
    """Ask on the terminal; end the command with one of the two texts if the answer is not yes."""
    try:
        agreed = typer.confirm(question)
    except typer.Abort:
        refuse(no_answer, STOPPED)
    if not agreed:
        echo(make_console(), declined)
        raise typer.Exit(DECLINED)


@contextmanager
def open_cli_store(url: str | None, *, create: bool = False, unavailable: int = USAGE) -> Iterator[Store]:
    """Open the store of `--store` for the block; print its errors and exit with 2.

    `create`: make the file if it is missing; reading never does. `unavailable`: the exit status if the store may answer
    later.
    """
    where = default_store(url)
    if not create and is_absent(where):
        refuse(f"no store at {where}: no run was started there; name another with --store FILE, or GEPA_STORE")
    try:
        with closing(open_store(where)) as store:
            yield store
    except StoreUnavailable as error:
        refuse(str(error), unavailable)
    except (ClientError, RpcError) as error:
        refuse(summary(error))


def is_absent(url: str | None) -> bool:
    """Return whether the store is a file that does not exist yet."""
    where = default_store(url)
    try:
        return not looks_like_a_url(where) and not Path(where).exists()
    except (OSError, ValueError) as error:  # a name that no file can have
        why = getattr(error, "strerror", None) or error
        refuse(f"the store {where} cannot be opened: {why}; name another with --store FILE")


@contextmanager
def open_cli_run(url: str | None, name: str, *, unavailable: int = USAGE) -> Iterator[tuple[Store, StoredRun]]:
    """Open the store and find the run `name`; as `open_cli_store`."""
    with open_cli_store(url, unavailable=unavailable) as store:
        yield store, find_run(store, name)


def next_command(run: StoredRun, store: str | None, *, candidates: bool = True) -> str:
    """Return the next command for a run in its present state."""
    if run.status == "running" and not is_silent(run):
        return command("cancel", run.id, store=store)
    if run.status in ("pending", "running", "paused", "failed"):
        return resume_call(run, store)
    return command("watch" if candidates else "runs", *([run.id] if candidates else []), store=store)


def resume_call(run: StoredRun, store: str | None) -> str:
    """Return what continues a run: a command, or the call of a run whose program that call serves."""
    return run.resumed_by or command("resume", run.id, store=store)


def is_silent(run: StoredRun) -> bool:
    """Return whether a run is marked as running but its driver has given no sign of life for a long time."""
    return run.status == "running" and (seconds_since(run.updated) or 0.0) > SILENT_S


def run_as_json(run: StoredRun) -> dict[str, Any]:
    """Return a run's record without the lease's counter."""
    record = asdict(run)
    del record["claim"]
    return record | {"driven": run.claim.owner is not None}
