"""`gepa-client cancel RUN`: asks whoever drives a run to stop, waits for it, and ends a run that nobody drives."""

import time
import uuid
from typing import Annotated

import typer

from evolverpc_common.printed_commands import command
from gepa_client.cli.arguments import AsJson, RunName, StoreUrl
from gepa_client.cli.commands.store_access import open_cli_run, refuse
from gepa_client.cli.views.console import make_console, print_json, safe_line, say
from gepa_client.journal.entries import StoredRun
from gepa_client.journal.store import Store

LEASE_S = 10.0
"""Seconds without a sign of life after which a driver is gone, where the run's settings do not say."""

LOOK_EVERY_S = 0.2
STILL_RUNNING = 1
BY_HAND = "cancelled by hand"
WISH = "cancel"


def cancel(
    run: RunName,
    wait: Annotated[
        float, typer.Option("--wait", min=0, metavar="SECONDS", help="How long to wait for the run to stop.")
    ] = 60.0,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Stop a run for good; what is in flight ends first, and everything found is kept.

    Ends with 0 when the run has stopped, 1 when it is still stopping after --wait, 2 when it cannot be cancelled.
    """
    console = make_console()
    with open_cli_run(store, run) as (kept, found):
        if found.status == "completed":
            again = command("show", found.id, store=store)
            refuse(f"run {found.id} is completed: there is nothing to cancel. See `{again}`")
        if found.status != "cancelled" or found.claim.owner is not None:
            if found.claim.owner is not None and not as_json:
                driver = found.driver or "another process"
                say(console, f"asking {safe_line(driver)} to stop; waiting up to {wait:g} s for what is in flight")
            found = _cancel(kept, found, wait)
        stopped = found.claim.owner is None
        if as_json:
            print_json({"run": found.id, "status": found.status, "reason": found.reason, "stopped": stopped})
        elif stopped:
            said = f": {found.reason}" if found.reason and found.reason != BY_HAND else ""
            say(console, f"{safe_line(found.id)} is {safe_line(found.status + said)}; what it found is kept")
            say(console, f"next: {safe_line(command('show', found.id, store=store))}")
        else:
            say(
                console,
                f"[yellow]{safe_line(found.id)} has not stopped yet:[/] what is in flight has not ended, or its driver "
                f"is gone, which {_lease_s(found):g} s without a sign of life tell",
            )
            say(console, f"next: {safe_line(command('cancel', found.id, store=store))}")
    if not stopped:
        raise typer.Exit(STILL_RUNNING)


def _cancel(store: Store, run: StoredRun, wait_s: float) -> StoredRun:
    """Ask, and wait; a run whose claim stands still for its lease, or that is free, is ended here.

    Clocks of two machines are never compared: only whether the claim moves while this process waits.
    """
    owner = f"cancel-{uuid.uuid4().hex}"
    lease_s = _lease_s(run)
    store.update(run.id, {"wish": WISH})
    until = time.monotonic() + wait_s
    seen, since = run.claim, time.monotonic()
    while True:
        run = store.run(run.id)
        if run.claim.owner is None and run.status in ("completed", "cancelled"):
            store.update(run.id, {"wish": None})  # else it would stop whoever extends the run later
            return store.run(run.id)
        if run.wish is None:  # whoever took the run over meanwhile may have thought it an old one
            store.update(run.id, {"wish": WISH})
        if run.claim != seen:
            seen, since = run.claim, time.monotonic()
        if (seen.owner is None or time.monotonic() - since >= lease_s) and store.claim(
            run.id, seen, owner, "gepa-client cancel"
        ):
            try:
                store.update(run.id, {"status": "cancelled", "reason": BY_HAND, "wish": None}, owner=owner)
            finally:
                store.release(run.id, owner)
            return store.run(run.id)
        if time.monotonic() >= until:
            return run
        time.sleep(LOOK_EVERY_S)


def _lease_s(run: StoredRun) -> float:
    return float(run.config.get("lease_s") or LEASE_S)
