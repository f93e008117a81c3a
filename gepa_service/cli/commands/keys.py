"""`gepa-service keys`: create, list and revoke keys of a tenant, on the machine of the service."""

import contextlib
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from evolverpc_common.display_text import line
from gepa_service.auth.keys import key_of_owner, make_key, revoke_key
from gepa_service.cli.data_folder import DataFolder
from gepa_service.cli.operator_settings import OperatorError, variable_of
from gepa_service.cli.printing import refuse
from gepa_service.model.tenant import TENANTS, ApiKey, Role, Tenant
from gepa_service.records.every import every
from gepa_service.records.open_records import open_records
from gepa_service.records.record import now
from gepa_service.records.store import RecordError, RecordStore

APP = typer.Typer(no_args_is_help=True, help="Create, list and revoke API keys of a tenant.")

Data = Annotated[
    Path,
    typer.Option("--data", metavar="DIR", help="The folder of `gepa-service up`; not read with GEPA_SERVICE_RECORDS."),
]
Named = Annotated[str | None, typer.Option("--tenant", help="Its id or name; needed if there are several tenants.")]
DEFAULT = Path("service-data")


@APP.command()
def create(
    role: Annotated[Role, typer.Option(help="What the key permits.")] = "owner",
    name: Annotated[str, typer.Option(help="What it is for.")] = "made by the operator",
    days: Annotated[
        float | None, typer.Option(min=0.001, help="Days after which it expires; without it: never.")
    ] = None,
    tenant: Named = None,
    data: Data = DEFAULT,
) -> None:
    """Create a key, and print it once."""
    with _records(data) as records:
        owner = _tenant(records, tenant)
        expires = None if days is None else now() + timedelta(days=days)
        key, record = make_key(owner.id, name, role, expires)
        records.insert(record)
    print(f"A key of the tenant {line(owner.name)}, role {role}. It is shown now and never again:\n")
    print(f"export GEPA_SERVICE_KEY={key}")


@APP.command("list")
def list_(tenant: Named = None, data: Data = DEFAULT) -> None:
    """List the keys of a tenant by their ids; the keys themselves are stored nowhere."""
    with _records(data) as records:
        owner = _tenant(records, tenant)
        for each in every(records, ApiKey, TENANTS, {"owner": owner.id}):
            print(f"{each.id}  {each.role:6}  {_state(each):8}  {line(each.name)}")


@APP.command()
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="As `list` prints it.")],
    tenant: Named = None,
    data: Data = DEFAULT,
) -> None:
    """Refuse a key from now on."""
    with _records(data) as records:
        found = key_of_owner(records, _tenant(records, tenant).id, key_id)
        if found is None:
            refuse(f"there is no key {key_id}: gepa-service keys list")
        revoke_key(records, found)
    print(f"The key {key_id} is refused from now on.")


@contextlib.contextmanager
def _records(data: Path) -> Iterator[RecordStore]:
    url = os.environ.get(variable_of("records"))
    try:
        if not url:
            folder = DataFolder(data.absolute())
            folder.require_service()
            url = str(folder.records)
        with contextlib.closing(open_records(url)) as records:
            yield records
    except (OperatorError, RecordError) as error:
        refuse(str(error))


def _tenant(records: RecordStore, named: str | None) -> Tenant:
    found = [each for each in every(records, Tenant, TENANTS) if named in (None, each.id, each.name)]
    if not found:
        refuse("there is no tenant" + ("" if named is None else f" {named}"))
    if len(found) > 1:
        listed = "\n".join(f"  {each.id}  {line(each.name)}" for each in found)
        refuse(f"there are several tenants; give --tenant ID:\n{listed}")
    return found[0]


def _state(key: ApiKey) -> str:
    if key.revoked is not None:
        return "revoked"
    return "expired" if key.expires is not None and key.expires <= now() else "valid"
