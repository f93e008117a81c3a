"""`evolverpc replay RUN`: the whole run again from its record, without any server or model."""

from pathlib import Path
from typing import Annotated

import typer

from evolverpc_common.settings.sources import SettingsError
from gepa_client.cli.arguments import RunName, StoreUrl
from gepa_client.cli.commands.store_access import open_cli_run
from gepa_client.foreground.run_starts import replaying
from gepa_client.run import output_folder as files
from gepa_client.views.console import refuse


def replay(
    run: RunName,
    until: Annotated[
        int | None, typer.Option("--until", min=0, metavar="N", help="Stop before the request of this number.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="Folder for results and report, new or empty (default: none).")
    ] = None,
    json_events: Annotated[bool, typer.Option("--json", help="Print events as JSON lines, a summary last.")] = False,
    store: StoreUrl = None,
) -> None:
    """Replay a run: GEPA decides again, with the recorded responses. Nothing is called or paid for.

    Exits with 0 if the whole record was replayed, 1 if GEPA makes other requests than the recorded ones, 2 if the run
    cannot be replayed.
    """
    with open_cli_run(store, run) as (_, found):
        pass
    try:
        folder = files.create(output) if output is not None else None
        running = replaying(found, store, folder, json_events=json_events, until=until)
    except (SettingsError, OSError) as error:
        refuse(str(error))
    raise typer.Exit(running.drive().exit_status)
