"""The command line: its subcommands, each imported when it is used."""

from pathlib import Path
from typing import Annotated, Literal

import typer

app = typer.Typer(name="gepa-service", no_args_is_help=True, add_completion=False)


@app.callback()
def about() -> None:
    """Optimize many people's programs over HTTP."""


@app.command()
def worker(
    records: Annotated[str, typer.Option(help="Database of records: a SQLite file or a mongodb:// URL.")],
    journals: Annotated[str, typer.Option(help="Store of runs: a SQLite file or a mongodb:// URL.")],
    api: Annotated[str, typer.Option(help="Address of the API, as this machine reaches it.")],
    folder: Annotated[Path, typer.Option(help="For the files of jobs.")] = Path("jobs"),
    jobs: Annotated[int, typer.Option(min=1, help="Jobs at the same time.")] = 2,
    sandbox: Annotated[
        Literal["bubblewrap", "process"], typer.Option(help="Backend of sandboxes; process isolates nothing.")
    ] = "bubblewrap",
    lease_s: Annotated[
        float, typer.Option(min=1.0, help="Seconds without a sign of life after which others take over a job.")
    ] = 10.0,
) -> None:
    """Run jobs. SIGTERM lets others continue them. The master key is named by GEPA_SERVICE_MASTER_KEY_FILE."""
    from gepa_client.errors import JournalError
    from gepa_service.cli.worker import work
    from gepa_service.records.store import RecordError
    from gepa_service.secrets.master_key import MasterKeyError

    try:
        work(records, journals, api, folder, jobs, sandbox, lease_s)
    except (RecordError, JournalError, MasterKeyError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None


def main() -> None:
    """Run the command."""
    app()
