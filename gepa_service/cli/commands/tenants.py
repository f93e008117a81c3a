"""`evolverpc service tenants`: create, list, change and delete tenants."""

from collections.abc import Mapping
from contextlib import closing
from typing import Annotated, Any

import typer

from evolverpc_common.settings.settings_command import with_flags
from gepa_client.errors import JournalError
from gepa_client.journal.store import open_store
from gepa_client.views.console import PAUSED, echo, make_console, print_json, refuse, safe_line
from gepa_service.cli.arguments import (
    DEFAULT_DATABASE,
    DEFAULT_JOURNALS,
    AsJson,
    Database,
    Journals,
    TenantName,
    find_tenant,
    open_cli_records,
)
from gepa_service.jobs.deletion import DeletionRefused, delete_tenant
from gepa_service.model.program_version import Program
from gepa_service.model.tenant import TENANTS, Quotas, Tenant
from gepa_service.model.work import Work
from gepa_service.records import changed, new_id

APP = typer.Typer(help="Create, list, change and delete tenants.", no_args_is_help=True, rich_markup_mode=None)

LONGEST_NAME = 200

Name = Annotated[str, typer.Argument(metavar="NAME", help="For people; it need not be unique.")]
QUOTAS: dict[str, tuple[Any, Any]] = {
    name: (Annotated[kind | None, typer.Option(min=0, metavar=metavar, help=text)], None)
    for name, kind, metavar, text in (
        ("jobs_at_once", int, "N", "Jobs that run at the same time."),
        ("jobs_queued", int, "N", "Jobs that wait."),
        ("sandboxes", int, "N", "Sandboxes of all its jobs."),
        ("usd_per_month", float, "USD", "What its jobs may cost in a month."),
        ("requests_per_minute", int, "N", "Requests to the API in a minute."),
    )
}
SHARED: dict[str, tuple[Any, Any]] = {"database": (Database, DEFAULT_DATABASE), "as_json": (AsJson, False)}


def create(name: str, database: str, as_json: bool, **quotas: float | None) -> None:
    """Create a tenant, with the default quotas unless they are given."""
    if not 0 < len(name) <= LONGEST_NAME:
        refuse(f"a tenant's name has 1 to {LONGEST_NAME} characters")
    given = _given(quotas)
    made = Tenant(tenant=TENANTS, id=new_id("tenant"), name=name, quotas=Quotas(**given))
    with open_cli_records(database, create=True) as records:
        records.insert(made)
    if as_json:
        print_json(_as_json(made))
        return
    console = make_console()
    echo(console, f"created {safe_line(made.id)}")
    echo(console, f"next: evolverpc service keys create {safe_line(made.id)} --role owner")


@APP.command("list")
def list_(database: Database = DEFAULT_DATABASE, as_json: AsJson = False) -> None:
    """List the tenants and their quotas."""
    with open_cli_records(database) as records:
        found = list(records.every(Tenant, TENANTS))
    if as_json:
        for tenant in found:
            print_json(_as_json(tenant))
        return
    console = make_console()
    if not found:
        echo(console, "no tenants; next: evolverpc service tenants create NAME")
        return
    for tenant in found:
        quotas = tenant.quotas.model_dump().items()
        echo(console, f"{safe_line(tenant.id)}  {safe_line(tenant.name)}")
        echo(console, "  " + ", ".join(f"{name} {'no limit' if of is None else f'{of:,}'}" for name, of in quotas))


@APP.command()
def delete(
    tenant: TenantName,
    yes: Annotated[
        bool, typer.Option("--yes", help="Delete it; without this, it is stated what would be deleted.")
    ] = False,
    database: Database = DEFAULT_DATABASE,
    journals: Journals = DEFAULT_JOURNALS,
) -> None:
    """Delete a tenant with all that is its own, for good.

    That is its keys, secrets, repositories, work, versions and files.
    """
    with open_cli_records(database, journals=journals) as records:
        found = find_tenant(records, tenant)
        work, versions = records.count(Work, found.id), records.count(Program, found.id)
        about = f"{safe_line(found.id)} ({safe_line(found.name)}), {work} jobs, batches and steps, {versions} versions"
        if not yes:
            refuse(f"nothing was deleted of {about}: give --yes to delete all of it, which cannot be undone")
        try:
            with closing(open_store(journals)) as store:
                delete_tenant(records, store, found)
        except DeletionRefused as error:
            refuse(str(error))
        except JournalError as error:
            refuse(f"{error}; give --journals, and repeat this", PAUSED)
    echo(make_console(), f"deleted {about}; a running dispatcher removes its files within two minutes")


def change(tenant: str, database: str, as_json: bool, **quotas: float | None) -> None:
    """Change quotas of a tenant; those that are not given stay. They hold within seconds."""
    given = _given(quotas)
    if not given:
        refuse("give at least one quota; evolverpc service tenants change --help lists them")
    with open_cli_records(database) as records:
        found = find_tenant(records, tenant)
        after = changed(
            records, found, lambda each: each.model_copy(update={"quotas": each.quotas.model_copy(update=given)})
        )
    if as_json:
        print_json(_as_json(after))
    else:
        echo(make_console(), f"changed {safe_line(after.id)}")


APP.command()(with_flags(create, {"name": (Name, ...), **QUOTAS, **SHARED}))
APP.command()(with_flags(change, {"tenant": (TenantName, ...), **QUOTAS, **SHARED}))


def _given(quotas: Mapping[str, float | None]) -> dict[str, Any]:
    return {name: value for name, value in quotas.items() if value is not None}


def _as_json(tenant: Tenant) -> dict[str, Any]:
    return tenant.model_dump(mode="json", include={"id", "name", "quotas", "created"})
