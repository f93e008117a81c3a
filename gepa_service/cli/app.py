"""The application: its commands, each loaded only if it is named, so that `--help` starts at once."""

import gc

import typer

from evolverpc_common.lazy_commands import add_module, application, named_command

HELP = """Optimize many people's programs over HTTP.

`up` is the whole service on one machine; `api` and `dispatcher` are its parts, over MongoDB on several machines.

The database is named by --database or GEPA_SERVICE_DATABASE, the master key by GEPA_SERVICE_MASTER_KEY_FILE.
"""

COMMANDS = {
    "up": "Start the whole service on this machine.",
    "api": "Serve the HTTP API.",
    "dispatcher": "Run the work of all tenants.",
    "tenants": "Create, list, change and delete tenants.",
    "keys": "Create, list and revoke API keys.",
    "backup": "Copy the databases of a service, and restore a copy.",
    "secrets": "Replace the keys of secrets; print the metrics token.",
}


def main() -> None:
    """Entry point of the console script."""
    gc.disable()  # garbage collection takes a tenth of the imports' time
    app = application(HELP, COMMANDS, _add, named_command())
    gc.freeze()  # what was imported is never garbage
    gc.enable()
    app(prog_name="evolverpc service")


def _add(app: typer.Typer, name: str, summary: str) -> None:
    add_module(app, name, summary, f"gepa_service.cli.commands.{name}")
