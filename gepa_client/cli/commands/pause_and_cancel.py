"""`evolverpc pause RUN`, `evolverpc cancel RUN`: ask the driver of a run to stop and wait for it.

A paused run is continued by `evolverpc resume`; a run that has no driver is ended here.
"""

from typing import Annotated

import typer

from evolverpc_common.display_text import command
from gepa_client.cli.arguments import AsJson, RunName, StoreUrl
from gepa_client.cli.commands.store_access import next_command, open_cli_run
from gepa_client.journal.entries import StoredRun
from gepa_client.journal.lease import lease_seconds
from gepa_client.journal.steer_entries import Cancel, Pause
from gepa_client.journal.store import Store
from gepa_client.steering.user_requests import BY_HAND, CANCEL, STATUS, stop
from gepa_client.views.console import STILL_RUNNING, echo, echo_next, make_console, print_json, refuse, safe_line

Wait = Annotated[float, typer.Option("--wait", min=0, metavar="SECONDS", help="How long to wait for the run to stop.")]


def pause(
    run: RunName,
    wait: Wait = 60.0,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Stop a run so that `evolverpc resume` continues it; examples in flight end first, and everything is kept.

    Exits with 0 if the run has stopped, 1 if it is still stopping after --wait, 2 if no process drives it.
    """
    with open_cli_run(store, run) as (kept, found):
        if found.claim.owner is None and found.status != "running":
            refuse(
                f"run {found.id} is {found.status}, and no process drives it: there is nothing to pause; "
                f"next: {next_command(found, store)}"
            )
        _stop_and_show(kept, found, Pause(), wait, store, as_json=as_json)


def cancel(
    run: RunName,
    wait: Wait = 60.0,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """End a run; examples in flight end first, and all results are kept. `evolverpc resume` can still continue it.

    Exits with 0 if the run has stopped, 1 if it is still stopping after --wait, 2 if it cannot be cancelled.
    """
    with open_cli_run(store, run) as (kept, found):
        if found.status == "completed":
            again = command("show", found.id, store=store)
            refuse(f"run {found.id} is completed: there is nothing to cancel. See `{again}`")
        _stop_and_show(kept, found, Cancel(), wait, store, as_json=as_json)


def _stop_and_show(
    kept: Store, run: StoredRun, wanted: Pause | Cancel, wait: float, store: str | None, *, as_json: bool
) -> None:
    """Stop a run, print its state and the next command; exit with 1 if it is still stopping."""
    console = make_console()
    if run.status != STATUS[wanted.kind] or run.claim.owner is not None:
        if run.claim.owner is not None and not as_json:
            driver = run.driver or "another process"
            echo(console, f"asking {safe_line(driver)} to stop; waiting up to {wait:g} s for examples in flight")
        run, _ = stop(kept, run, wanted, wait)
    stopped = run.claim.owner is None
    if as_json:
        print_json({"run": run.id, "status": run.status, "reason": run.reason, "stopped": stopped})
    elif stopped:
        why = f": {run.reason}" if run.reason and run.reason != BY_HAND[wanted.kind] else ""
        echo(console, f"{safe_line(run.id)} is {safe_line(run.status + why)}; everything is kept")
        echo_next(console, command("show", run.id, store=store) if wanted.kind == CANCEL else next_command(run, store))
    else:
        echo(
            console,
            f"[yellow]{safe_line(run.id)} has not stopped yet:[/] examples in flight have not ended, or its "
            f"driver is gone, which is certain after {lease_seconds(run):g} s without a heartbeat",
        )
        echo_next(console, command(wanted.kind, run.id, store=store))
    if not stopped:
        raise typer.Exit(STILL_RUNNING)
