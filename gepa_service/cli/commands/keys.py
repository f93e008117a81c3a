"""`evolverpc service keys`: create, list and revoke API keys."""

from datetime import timedelta
from typing import Annotated, Any

import typer

from gepa_client.views.console import echo, make_console, plain_table, print_json, refuse, safe_line
from gepa_service.auth.keys import key_of_owner, make_key, revoke_key
from gepa_service.cli.arguments import DEFAULT_DATABASE, AsJson, Database, TenantName, find_tenant, open_cli_records
from gepa_service.model.tenant import TENANTS, ApiKey, Role
from gepa_service.records import now

APP = typer.Typer(help="Create, list and revoke API keys.", no_args_is_help=True, rich_markup_mode=None)


@APP.command()
def create(
    tenant: TenantName,
    role: Annotated[Role, typer.Option(help="What the key permits.")] = "editor",
    name: Annotated[str, typer.Option(metavar="TEXT", help="What it is for.")] = "",
    expires_in_days: Annotated[
        float | None, typer.Option(min=0.0, metavar="N", help="From when it is refused (default never).")
    ] = None,
    database: Database = DEFAULT_DATABASE,
    as_json: AsJson = False,
) -> None:
    """Create a key and print it, once: only a hash of it is stored."""
    expires = None if expires_in_days is None else now() + timedelta(days=expires_in_days)
    with open_cli_records(database) as records:
        owner = find_tenant(records, tenant)
        key, record = make_key(owner.id, name or f"{role} of the command line", role, expires)
        records.insert(record)
    if as_json:
        print_json(_as_json(record) | {"key": key})
        return
    echo(make_console(stderr=True), f"the key of {safe_line(owner.id)}, which is never shown again:")
    print(key, flush=True)


@APP.command("list")
def list_(tenant: TenantName, database: Database = DEFAULT_DATABASE, as_json: AsJson = False) -> None:
    """List the keys of a tenant, revoked and expired ones too."""
    with open_cli_records(database) as records:
        owner = find_tenant(records, tenant)
        found = list(records.every(ApiKey, TENANTS, {"owner": owner.id}))
    if as_json:
        for key in found:
            print_json(_as_json(key))
        return
    console = make_console()
    if not found:
        echo(console, f"no keys; next: evolverpc service keys create {safe_line(owner.id)} --role owner")
        return
    table = plain_table("key", "role", "state", "name")
    for key in found:
        table.add_row(safe_line(key.id), key.role, _state(key), safe_line(key.name))
    table.columns[-1].no_wrap = False  # on a narrow terminal the name is wrapped, and no id is cut
    console.print(table, soft_wrap=not console.is_terminal)


@APP.command()
def revoke(
    tenant: TenantName,
    key_id: Annotated[str, typer.Argument(metavar="KEY", help="Its id: the part between `grk_` and the next `_`.")],
    database: Database = DEFAULT_DATABASE,
) -> None:
    """Revoke a key, at once and for good."""
    with open_cli_records(database) as records:
        owner = find_tenant(records, tenant)
        found = key_of_owner(records, owner.id, key_id)
        if found is None:
            listing = f"evolverpc service keys list {owner.id}"
            refuse(f"{owner.id} has no key {key_id}; {listing} shows all")
        revoke_key(records, found)
    echo(make_console(), f"revoked {safe_line(found.id)}")


def _state(key: ApiKey) -> str:
    if key.revoked is not None:
        return f"revoked {key.revoked:%Y-%m-%d}"
    if key.expires is None:
        return "valid"
    return f"{'expired' if key.expires <= now() else 'valid until'} {key.expires:%Y-%m-%d}"


def _as_json(key: ApiKey) -> dict[str, Any]:
    return key.model_dump(mode="json", include={"id", "owner", "name", "role", "created", "expires", "revoked"})
