"""`evolverpc pause RUN`: ask the driver of a run to stop and wait for it; the run can be resumed."""

from typing import Annotated

import typer

from gepa_client.cli.arguments import AsJson, RunName, StoreUrl
from gepa_client.cli.commands.cancel import stop_and_show
from gepa_client.cli.commands.store_access import next_command, open_cli_run
from gepa_client.journal.steer_entries import Pause
from gepa_client.views.console import refuse


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
    with open_cli_run(store, run) as (kept, found):
        if found.claim.owner is None and found.status != "running":
            refuse(
                f"run {found.id} is {found.status}, and no process drives it: there is nothing to pause; "
                f"next: {next_command(found, store)}"
            )
        stop_and_show(kept, found, Pause(), wait, store, as_json=as_json)
