"""The application: its commands, each loaded only if it is named, so that `--help` starts at once."""

import gc
import sys
from importlib import import_module
from typing import Annotated

import typer

from evolverpc_common.installation import stated_version

HELP = """Optimize many people's programs over HTTP.

`up` is the whole service on one machine; `api` and `worker` are its parts, any number of each, over MongoDB.

The database is named by --database or GEPA_SERVICE_DATABASE, the master key by GEPA_SERVICE_MASTER_KEY_FILE.
"""

COMMANDS = {
    "up": "Start the whole service on this machine.",
    "api": "Serve the HTTP API.",
    "worker": "Run the jobs of all tenants.",
    "tenants": "Create, list and change tenants.",
    "keys": "Create, list and revoke API keys.",
    "secrets": "Replace the keys that encrypt secrets.",
}
"""Each is a module of `gepa_service.cli.commands` with a function of its name, or an `APP` of commands."""


def build(loaded: str | None) -> typer.Typer:
    """Build the application; only the command `loaded` has its code and flags, the others have a line of help."""
    app = typer.Typer(
        help=HELP,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,  # plain help gives every flag in full, however long its name
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
        if (group := getattr(module, "APP", None)) is not None:
            app.add_typer(group, name=name, short_help=summary)
        else:
            app.command(name, short_help=summary)(getattr(module, name))
    return app


def main() -> None:
    """Entry point of the console script."""
    named = next((argument for argument in sys.argv[1:] if not argument.startswith("-")), None)
    gc.disable()  # garbage collection takes a tenth of the imports' time
    app = build(named)
    gc.freeze()  # what was imported is never garbage
    gc.enable()
    app(prog_name="evolverpc service")


def _not_loaded() -> None:
    raise AssertionError("main() loads the command that is named")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(stated_version())
        raise typer.Exit
