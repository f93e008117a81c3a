"""The application: its commands, each loaded only if it is named, so that `--help` starts at once."""

import sys
from importlib import import_module
from typing import Annotated

from pathlib import Path
from typing import Annotated, Literal

import typer

from evolverpc_common.installation import installed_version

HELP = """Optimize many people's programs over HTTP.

`up` is the whole service on one machine. `api` and `worker` are its parts, any number of each, over MongoDB.
"""

COMMANDS = {
    "up": "Start the whole service on this machine.",
    "api": "Serve the HTTP API.",
    "worker": "Run the jobs of all tenants.",
    "keys": "Create, list and revoke API keys of a tenant.",
}


def build(loaded: str | None) -> typer.Typer:
    """Build the application; only the command `loaded` has its code and flags, the others have a line of help."""
    app = typer.Typer(
        help=HELP,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def common(
        version: Annotated[
            bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
        ] = False,
    ) -> None:
        pass

    for name, summary in COMMANDS.items():
        if name != loaded:
            app.command(name, help=summary)(_not_loaded)
            continue
        module = import_module(f"gepa_service.cli.commands.{name}")
        if (group := getattr(module, "APP", None)) is not None:  # a command with commands of its own
            app.add_typer(group, name=name, short_help=summary)
        else:
            app.command(name, short_help=summary)(getattr(module, name))
    return app


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
    """Entry point of the console script."""
    named = next((argument for argument in sys.argv[1:] if not argument.startswith("-")), None)
    build(named)(prog_name="gepa-service")


def _not_loaded() -> None:
    raise AssertionError("main() loads the command that is named")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"gepa-service {installed_version()}")
        raise typer.Exit
