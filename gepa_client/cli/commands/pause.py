"""`evolverpc pause RUN`: ask the driver of a run to stop and wait for it; the run can be resumed."""

from typing import Annotated

import typer

from evolverpc_common.printed_commands import command
from gepa_client.cli.arguments import AsJson, RunName, StoreUrl
from gepa_client.cli.commands.store_access import next_command, open_cli_run
from gepa_client.journal.entries import StoredRun
from gepa_client.journal.steer_entries import Pause
from gepa_client.steering.stopping import stop
from gepa_client.views.console import echo, echo_next, make_console, print_json, refuse, safe_line
from gepa_client.views.exit_statuses import STILL_RUNNING


def pause(
    run: RunName,
    wait: Annotated[
        float, typer.Option("--wait", min=0, metavar="SECONDS", help="How long to wait for the run to stop.")
    ] = 60.0,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Stop a run so that `evolverpc resume` continues it; examples in flight end first, and everything is kept.

    Exits with 0 if the run has stopped, 1 if it is still stopping after --wait, 2 if no process drives it.
    """
    console = make_console()
    with open_cli_run(store, run) as (kept, found):
        if found.claim.owner is None and found.status != "running":
            refuse(
                f"run {found.id} is {found.status}, and no process drives it: there is nothing to pause; "
                f"next: {next_command(found, store)}"
            )
        if not as_json:
            driver = found.driver or "its driver"
            echo(console, f"asking {safe_line(driver)} to stop; waiting up to {wait:g} s for examples in flight")
        found, _ = stop(kept, found, Pause(), wait)
        stopped = found.claim.owner is None
        if as_json:
            print_json({"run": found.id, "status": found.status, "reason": found.reason, "stopped": stopped})
        else:
            _show(found, store, stopped=stopped)
    if not stopped:
        raise typer.Exit(STILL_RUNNING)


def _show(run: StoredRun, store: str | None, *, stopped: bool) -> None:
    console = make_console()
    if not stopped:
        echo(console, f"[yellow]{safe_line(run.id)} has not stopped yet:[/] examples in flight have not ended")
        echo_next(console, command("pause", run.id, store=store))
        return
    why = f": {run.reason}" if run.reason else ""
    echo(console, f"{safe_line(run.id)} is {safe_line(run.status + why)}; everything is kept")
    echo_next(console, next_command(run, store))
