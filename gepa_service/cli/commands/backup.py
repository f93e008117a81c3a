"""`evolverpc service backup`: copy the databases of a service while it runs, and start one from a copy."""

import shlex
import shutil
from pathlib import Path
from typing import Annotated

import typer

from gepa_client.views.console import echo, make_console, refuse, safe_line
from gepa_service.cli.arguments import DEFAULT_DATABASE, DEFAULT_JOURNALS, Database, Journals, open_cli_records
from gepa_service.cli.data_folder import opened_folder
from gepa_service.cli.service_parts import ConfigurationError
from gepa_service.model.tenant import TENANTS, MasterKeyName
from gepa_service.operation.backup import JOURNALS, RECORDS, BackupFailed, back_up, checked
from gepa_service.secrets.vault import PRESENT

APP = typer.Typer(
    help="Copy the databases of a service, and restore a copy.", no_args_is_help=True, rich_markup_mode=None
)


@APP.command()
def create(
    target: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder, which gets the copy.")],
    database: Database = DEFAULT_DATABASE,
    journals: Journals = DEFAULT_JOURNALS,
) -> None:
    """Copy both SQLite databases into a folder, while the service runs. The master key is not in it."""
    if "://" in database + journals:
        refuse(
            "databases of MongoDB are copied by its own tools: mongodump --oplog makes a copy, mongorestore reads it"
        )
    with open_cli_records(database) as records:
        found = records.get(MasterKeyName, TENANTS, PRESENT)
    try:
        back_up(Path(database), Path(journals), None if found is None else found.name, target)
    except BackupFailed as error:
        refuse(str(error))
    console = make_console()
    echo(console, f"copied to {safe_line(str(target))}")
    if found is not None:
        echo(console, f"keep the master key {found.name} in another place: no secret can be read without it")


@APP.command()
def restore(
    backup: Annotated[Path, typer.Argument(metavar="FOLDER", help="As `create` made it.")],
    data: Annotated[Path, typer.Option(metavar="DIR", help="The folder of the restored service, without databases.")],
) -> None:
    """Check a copy, and put its databases into the folder of a service that does not run."""
    try:
        manifest = checked(backup)
        with opened_folder(data) as folder:
            if folder.records.exists() or folder.journals.exists():
                refuse(f"{data} holds databases: nothing was changed; move them away, or give another --data")
            for name, path in ((JOURNALS, folder.journals), (RECORDS, folder.records)):
                draft = path.with_suffix(".draft")
                shutil.copyfile(backup / name, draft)
                draft.chmod(0o600)
                draft.replace(path)
            lacks_key = manifest.master_key is not None and not folder.master_key.exists()
    except (BackupFailed, ConfigurationError) as error:
        refuse(str(error))
    except OSError as error:
        refuse(f"{data} cannot be written: {error.strerror or error}")
    console = make_console()
    echo(console, f"restored to {safe_line(str(data))}, as of {manifest.made:%Y-%m-%d %H:%M} UTC")
    if lacks_key:
        echo(console, f"put the master key {manifest.master_key} in {safe_line(str(folder.master_key))} (mode 600)")
    echo(console, f"next: evolverpc service up --data {shlex.quote(str(data))}")
