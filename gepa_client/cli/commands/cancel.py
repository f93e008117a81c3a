"""`evolverpc cancel RUN`: ask the driver of a run to stop and wait for it; end a run that has no driver."""

from typing import Annotated

import typer

from evolverpc_common.printed_commands import command
from gepa_client.cli.arguments import AsJson, RunName, StoreUrl
from gepa_client.cli.commands.store_access import open_cli_run
from gepa_client.journal.lease import lease_seconds
from gepa_client.journal.steer_entries import Cancel
from gepa_client.steering.stopping import BY_HAND, CANCEL, stop
from gepa_client.views.console import echo, echo_next, make_console, print_json, refuse, safe_line
from gepa_client.views.exit_statuses import STILL_RUNNING


def cancel(
    run: RunName,
    wait: Annotated[
        float, typer.Option("--wait", min=0, metavar="SECONDS", help="How long to wait for the run to stop.")
    ] = 60.0,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """End a run; examples in flight end first, and all results are kept. `evolverpc resume` can still continue it.

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
            found, _ = stop(kept, found, Cancel(), wait)
        stopped = found.claim.owner is None
        if as_json:
            print_json({"run": found.id, "status": found.status, "reason": found.reason, "stopped": stopped})
        elif stopped:
            why = f": {found.reason}" if found.reason and found.reason != BY_HAND[CANCEL] else ""
            echo(console, f"{safe_line(found.id)} is {safe_line(found.status + why)}; its results are kept")
            echo_next(console, command("show", found.id, store=store))
        else:
            echo(
                console,
                f"[yellow]{safe_line(found.id)} has not stopped yet:[/] examples in flight have not ended, or its "
                f"driver is gone, which is certain after {lease_seconds(found):g} s without a heartbeat",
            )
            echo_next(console, command("cancel", found.id, store=store))
    if not stopped:
        raise typer.Exit(STILL_RUNNING)
