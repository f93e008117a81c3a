"""Copies of the SQLite databases of a service, which are made while it runs, and read back whole or not at all."""

import hashlib
import os
import secrets
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from evolverpc_common.files import remove_tree
from evolverpc_common.installation import installed_version
from gepa_service.records.record import now

MANIFEST = "manifest.json"
RECORDS, JOURNALS = "records.db", "journals.db"


class BackupFailed(Exception):
    """A backup cannot be made or read; the text has the reason and what to do."""


class Manifest(BaseModel):
    """What a backup holds. `version`: of the package. `master_key`: its name; the key itself is in no backup.

    `sha256`: of each file, by its name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    made: datetime
    version: str
    master_key: str | None
    sha256: Mapping[str, str]


def back_up(records: Path, journals: Path, master_key: str | None, target: Path) -> None:
    """Copy both databases into the new folder `target`, which its owner alone may read.

    Each copy is the state of one moment. The records are copied first: work whose run is further than its record is
    continued, as after a death of its attempt.

    Raises `BackupFailed`: a database is missing or damaged, or the folder is there or cannot be written.
    """
    if target.exists():
        raise BackupFailed(f"{target} is there already: name a new folder")
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        draft.mkdir(mode=0o700, parents=True)
        for source, name in ((records, RECORDS), (journals, JOURNALS)):
            _copy(source, draft / name)
        digests = {name: _sha256(draft / name) for name in (RECORDS, JOURNALS)}
        manifest = Manifest(made=now(), version=installed_version(), master_key=master_key, sha256=digests)
        (draft / MANIFEST).write_text(manifest.model_dump_json(indent=2), encoding="utf-8")
        draft.rename(target)
    except OSError as error:
        raise BackupFailed(f"{target} cannot be written: {error.strerror or error}") from error
    finally:
        remove_tree(draft)


def checked(backup: Path) -> Manifest:
    """Return what a backup holds, all of which was read. Raises `BackupFailed`: it is none, or not whole."""
    try:
        manifest = Manifest.model_validate_json((backup / MANIFEST).read_bytes())
        wrong = [name for name in (RECORDS, JOURNALS) if _sha256(backup / name) != manifest.sha256.get(name)]
    except (OSError, ValidationError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it was not written by this command"
        raise BackupFailed(f"{backup} is no whole backup: {MANIFEST} or a database cannot be read: {reason}") from error
    if wrong:
        raise BackupFailed(f"{backup} is no whole backup: {wrong[0]} was cut short or changed; use another copy of it")
    return manifest


def _copy(source: Path, target: Path) -> None:
    if not source.is_file():
        raise BackupFailed(f"there is no database {source}: name both with --database and --journals")
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with (
            closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=rw", uri=True)) as opened,
            closing(sqlite3.connect(target)) as copy,
        ):
            opened.backup(copy)
            if (found := copy.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise BackupFailed(f"{source} is damaged: {found}")
    except sqlite3.Error as error:
        raise BackupFailed(f"{source} cannot be copied: {error}") from error


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
