"""`gepa-client cancel RUN`: ask the driver of a run to stop and wait for it; end a run that has no driver."""

import time
import uuid
from typing import Annotated

import typer

from evolverpc_common.printed_commands import command
from gepa_client.cli.arguments import AsJson, RunName, StoreUrl
from gepa_client.cli.commands.store_access import open_cli_run
from gepa_client.cli.views.console import echo, make_console, print_json, refuse, safe_line
from gepa_client.journal.entries import StoredRun
from gepa_client.journal.store import Store

LEASE_S = 10.0
"""Seconds without a heartbeat after which a driver counts as gone, if the run's settings do not define it."""

LOOK_EVERY_S = 0.2
STILL_RUNNING = 1
BY_HAND = "cancelled by hand"
CANCEL = "cancel"


def cancel(
    run: RunName,
    wait: Annotated[
        float, typer.Option("--wait", min=0, metavar="SECONDS", help="How long to wait for the run to stop.")
    ] = 60.0,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Stop a run for good; examples in flight end first, and all results are kept.

    Exits with 0 if the run has stopped, 1 if it is still stopping after --wait, 2 if it cannot be cancelled.
    """
    console = make_console()
    with open_cli_run(store, run) as (kept, found):
        if found.status == "completed":
            again = command("show", found.id, store=store)
            refuse(f"run {found.id} is completed: there is nothing to cancel. See `{again}`")
        if found.status != "cancelled" or found.claim.owner is not None:
            if found.claim.owner is not None and not as_json:
                driver = found.driver or "another process"
                echo(console, f"asking {safe_line(driver)} to stop; waiting up to {wait:g} s for examples in flight")
            found = _cancel(kept, found, wait)
        stopped = found.claim.owner is None
        if as_json:
            print_json({"run": found.id, "status": found.status, "reason": found.reason, "stopped": stopped})
        elif stopped:
            why = f": {found.reason}" if found.reason and found.reason != BY_HAND else ""
            echo(console, f"{safe_line(found.id)} is {safe_line(found.status + why)}; its results are kept")
            echo(console, f"next: {safe_line(command('show', found.id, store=store))}")
        else:
            echo(
                console,
                f"[yellow]{safe_line(found.id)} has not stopped yet:[/] examples in flight have not ended, or its "
                f"driver is gone, which is certain after {_lease_s(found):g} s without a heartbeat",
            )
            echo(console, f"next: {safe_line(command('cancel', found.id, store=store))}")
    if not stopped:
        raise typer.Exit(STILL_RUNNING)


def _cancel(store: Store, run: StoredRun, wait_s: float) -> StoredRun:
    """Request the cancellation and wait; end a run here whose lease is free or has not moved for its duration.

    Clocks of two machines are never compared, only whether the lease moves while this process waits.
    """
    owner = f"cancel-{uuid.uuid4().hex}"
    lease_s = _lease_s(run)
    store.update(run.id, {"requested_action": CANCEL})
    until = time.monotonic() + wait_s
    seen, since = run.claim, time.monotonic()
    while True:
        run = store.run(run.id)
        if run.claim.owner is None and run.status in ("completed", "cancelled"):
            store.update(run.id, {"requested_action": None})  # else it would stop a later extension of the run
            return store.run(run.id)
        if run.requested_action is None:  # a driver that took the run over may have discarded it as an old one
            store.update(run.id, {"requested_action": CANCEL})
        if run.claim != seen:
            seen, since = run.claim, time.monotonic()
        if (seen.owner is None or time.monotonic() - since >= lease_s) and store.claim(
            run.id, seen, owner, "gepa-client cancel"
        ):
            try:
                store.update(run.id, {"status": "cancelled", "reason": BY_HAND, "requested_action": None}, owner=owner)
            finally:
                store.release(run.id, owner)
            return store.run(run.id)
        if time.monotonic() >= until:
            return run
        time.sleep(LOOK_EVERY_S)


def _lease_s(run: StoredRun) -> float:
    return float(run.config.get("lease_s") or LEASE_S)
