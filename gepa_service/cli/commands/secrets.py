"""`evolverpc service secrets`: replace the keys that encrypt secrets, and print the token of the metrics."""

import os
from typing import Annotated

import typer

from gepa_client.views.console import echo, make_console, refuse, safe_line
from gepa_service.cli.arguments import DEFAULT_DATABASE, Database, find_tenant, open_cli_records
from gepa_service.model.tenant import TENANTS, Tenant
from gepa_service.secrets.master_key import METRICS, MasterKeyError, master_keys
from gepa_service.secrets.vault import Vault

APP = typer.Typer(
    help="Replace the keys of secrets; print the metrics token.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@APP.command()
def metrics_token() -> None:
    """Print the token by which Prometheus reads `GET /metrics`; it follows from the master key."""
    try:
        print(master_keys(os.environ)[0].derived(METRICS).hex())
    except MasterKeyError as error:
        refuse(str(error))


@APP.command()
def rotate(
    tenant: Annotated[
        str | None, typer.Argument(metavar="[TENANT]", help="Only the secrets of this one (default all).")
    ] = None,
    master: Annotated[
        bool, typer.Option("--master", help="Encrypt the keys of all tenants by the first master key instead.")
    ] = False,
    database: Database = DEFAULT_DATABASE,
) -> None:
    """Encrypt secrets by a new key of their tenant; nothing stops meanwhile, and it can be repeated.

    To replace the master key: write the new key as the first line of its file, above the old one; start the API and the
    dispatcher again; run this with --master; then delete the old line.
    """
    if master and tenant is not None:
        refuse("--master is about all tenants: leave TENANT out")
    console = make_console()
    with open_cli_records(database) as records:
        vault = Vault(records, master_keys(os.environ))
        vault.verify()
        if master:
            count = vault.rotate_master_key()
            echo(console, f"the keys of {count} tenants are now encrypted by the master key {vault.masters[0].name}")
            return
        chosen = list(records.every(Tenant, TENANTS)) if tenant is None else [find_tenant(records, tenant)]
        for each in chosen:
            if each.wrapped_key is None:
                continue  # it never had a secret
            count = vault.rotate_tenant_key(each.id)
            echo(console, f"{safe_line(each.id)}: {count} secrets are encrypted by a new key")
