"""`evolverpc service backup`: copy the databases of a service while it runs, and start one from a copy."""

import hashlib
import os
import secrets
import shlex
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from pydantic import BaseModel, ConfigDict, ValidationError

from evolverpc_common.files import remove_tree
from evolverpc_common.installation import installed_version
from gepa_client.views.console import echo, make_console, refuse, safe_line
from gepa_service.cli.arguments import DEFAULT_DATABASE, DEFAULT_JOURNALS, Database, Journals, open_cli_records
from gepa_service.cli.service_configuration import KEY_FILE, RECORDS, RUNS, ConfigurationError, opened_folder
from gepa_service.model.tenant import TENANTS, MasterKeyName
from gepa_service.records import now
from gepa_service.secrets.vault import PRESENT

APP = typer.Typer(
    help="Copy the databases of a service, and restore a copy.", no_args_is_help=True, rich_markup_mode=None
)

MANIFEST = "manifest.json"


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
    with open_cli_records(database, journals=journals) as records:
        found = records.get(MasterKeyName, TENANTS, PRESENT)
    _back_up(Path(database), Path(journals), None if found is None else found.name, target)
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
        manifest = _checked(backup)
        with opened_folder(data) as folder:
            if (folder / RECORDS).exists() or (folder / RUNS).exists():
                refuse(f"{data} holds databases: nothing was changed; move them away, or give another --data")
            for name in (RUNS, RECORDS):
                path = folder / name
                draft = path.with_suffix(".draft")
                shutil.copyfile(backup / name, draft)
                draft.chmod(0o600)
                draft.replace(path)
            lacks_key = manifest.master_key is not None and not (folder / KEY_FILE).exists()
    except ConfigurationError as error:
        refuse(str(error))
    except OSError as error:
        refuse(f"{data} cannot be written: {error.strerror or error}")
    console = make_console()
    echo(console, f"restored to {safe_line(str(data))}, as of {manifest.made:%Y-%m-%d %H:%M} UTC")
    if lacks_key:
        echo(console, f"put the master key {manifest.master_key} in {safe_line(str(folder / KEY_FILE))} (mode 600)")
    echo(console, f"next: evolverpc service up --data {shlex.quote(str(data))}")


class Manifest(BaseModel):
    """What a backup holds. `version`: of the package. `master_key`: its name; the key itself is in no backup.

    `sha256`: of each file, by its name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    made: datetime
    version: str
    master_key: str | None
    sha256: Mapping[str, str]


def _back_up(records: Path, journals: Path, master_key: str | None, target: Path) -> None:
    """Copy both databases into the new folder `target`, which its owner alone may read.

    Each copy is the state of one moment. The records are copied first: work whose run is further than its record is
    continued, as after a death of its attempt.

    Exits with 2 if a database is damaged, or the folder is there or cannot be written.
    """
    if target.exists():
        refuse(f"{target} is there already: name a new folder")
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        draft.mkdir(mode=0o700, parents=True)
        for source, name in ((records, RECORDS), (journals, RUNS)):
            _copy(source, draft / name)
        digests = {name: _sha256(draft / name) for name in (RECORDS, RUNS)}
        manifest = Manifest(made=now(), version=installed_version(), master_key=master_key, sha256=digests)
        (draft / MANIFEST).write_text(manifest.model_dump_json(indent=2), encoding="utf-8")
        draft.rename(target)
    except OSError as error:
        refuse(f"{target} cannot be written: {error.strerror or error}")
    finally:
        remove_tree(draft)


def _checked(backup: Path) -> Manifest:
    """Return what a backup holds, all of which was read. Exits with 2 if it is none, or not whole."""
    try:
        manifest = Manifest.model_validate_json((backup / MANIFEST).read_bytes())
        wrong = [name for name in (RECORDS, RUNS) if _sha256(backup / name) != manifest.sha256.get(name)]
    except (OSError, ValidationError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it was not written by this command"
        refuse(f"{backup} is no whole backup: {MANIFEST} or a database cannot be read: {reason}")
    if wrong:
        refuse(f"{backup} is no whole backup: {wrong[0]} was cut short or changed; use another copy of it")
    return manifest


def _copy(source: Path, target: Path) -> None:
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with (
            closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=rw", uri=True)) as opened,
            closing(sqlite3.connect(target)) as copy,
        ):
            opened.backup(copy)
            if (found := copy.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                refuse(f"{source} is damaged: {found}")
    except sqlite3.Error as error:
        refuse(f"{source} cannot be copied: {error}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
