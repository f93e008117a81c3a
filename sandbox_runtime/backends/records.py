"""What is written on disk about the sandboxes that this machine's processes started, so that others can sweep them.

    $XDG_STATE_HOME/evolverpc/sandboxes/<backend>/<id>/record.json     (~/.local/state without that variable)
    $XDG_RUNTIME_DIR/evolverpc/<id>/                                   (/tmp/evolverpc-<uid>/ without it)

The first holds who started it and what must be freed, and whatever else its backend keeps there; the second its
sockets, whose paths must be short. Both are this user's alone.
"""

import contextlib
import json
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from evolverpc_common.atomic_files import replace_file
from evolverpc_common.process_identity import Owner
from evolverpc_common.remove_tree import remove_tree
from sandbox_runtime.api.sandbox import SandboxInfo

VERSION = 1
"""Of what is written in `record.json`: higher where an older program would take it for something else."""

SOCKET_PATH_BYTES = 103
"""The longest path of a unix socket on every system."""

_ID = re.compile(r"[a-z0-9]{4,32}")
_KEY = re.compile(r"[a-z0-9-]{1,63}")
_SOCKET_NAME_BYTES = 32
_SWEPT = "swept"


@dataclass(frozen=True)
class Record:
    """One sandbox on disk. `folder`: its own, with the record in it. `sockets`: its folder for sockets.

    `owner`: None where the record cannot be read; then nothing but `id`, the folders and `created` is known of it.
    `unknown`: why it cannot be read although it may be whole; such a one is nobody's to sweep.
    `resources`: what its backend needs to free it; never a secret.
    """

    id: str
    folder: Path
    sockets: Path
    created: float
    owner: Owner | None
    labels: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, Any] = field(default_factory=dict)
    unknown: str = ""

    @property
    def is_orphan(self) -> bool:
        """Whether whoever started it is certainly gone; so it is where what the record holds makes no sense."""
        if self.unknown:
            return False
        return self.owner is None or self.owner.is_gone()

    def found(self) -> SandboxInfo:
        """The same as `Runtime.found` lists it."""
        owner = str(self.owner) if self.owner is not None else f"unknown: {self.unknown or 'its record cannot be read'}"
        return SandboxInfo(id=self.id, labels=self.labels, created=self.created, orphan=self.is_orphan, owner=owner)


class SandboxRecords:
    """The records of one backend. `state`, `sockets`: in place of the folders that the environment names."""

    def __init__(self, backend: str, *, state: Path | None = None, sockets: Path | None = None) -> None:
        self._root = (state or state_folder()) / "sandboxes" / backend
        self._sockets = sockets or sockets_folder()

    def add(self, labels: Mapping[str, str], resources: Mapping[str, Any] | None = None) -> Record:
        """A new record, owned by this process, with an id and folders of its own.

        Raises:
            ValueError: a label is not as `SandboxSpec.labels` says.
            OSError: a folder cannot be made, or belongs to somebody else.
        """
        check_labels(labels)
        root, short = private_folder(self._root), private_folder(self._sockets)
        id_ = secrets.token_hex(6)
        sockets = short / id_
        if len(os.fsencode(sockets)) + 1 + _SOCKET_NAME_BYTES > SOCKET_PATH_BYTES:
            raise OSError(f"{sockets} is too long for sockets: set XDG_RUNTIME_DIR to a shorter folder")
        record = Record(
            id_, root / id_, sockets, time.time(), Owner.this_process(), dict(labels), dict(resources or {})
        )
        # Made under another name and renamed, so that nobody ever lists a folder without its record.
        making = root / f".{id_}"
        try:
            making.mkdir(mode=0o700)
            _write(record, making)
            making.rename(record.folder)
            sockets.mkdir(mode=0o700)
        except BaseException:
            for folder in (making, record.folder):
                shutil.rmtree(folder, ignore_errors=True)
            raise
        return record

    def update(self, record: Record, resources: Mapping[str, Any]) -> Record:
        """The record with these resources in place of its own, on disk too."""
        updated = Record(
            record.id, record.folder, record.sockets, record.created, record.owner, record.labels, dict(resources)
        )
        _write(updated, record.folder)
        return updated

    def all(self, labels: Mapping[str, str] | None = None) -> list[Record]:
        """Every record with these labels; those that cannot be read have none."""
        return [record for record in self._read_all() if (labels or {}).items() <= record.labels.items()]

    def condemn(self, record: Record) -> None:
        """Leave word that it is being swept, to be done before anything of it is ended."""
        with contextlib.suppress(FileNotFoundError):  # then it is gone already
            (record.folder / _SWEPT).touch()

    def is_condemned(self, record: Record) -> bool:
        """Whether somebody swept it, or is about to."""
        return not record.folder.exists() or (record.folder / _SWEPT).exists()

    def remove(self, record: Record) -> None:
        """Delete its folders with all that is in them; to be called when everything else of it is freed."""
        if _ID.fullmatch(record.id) is None:
            raise ValueError(f"{record.id!r} is not the id of a sandbox")
        for sockets in {record.sockets, self._sockets / record.id}:
            if is_private(sockets.parent):
                remove_tree(sockets)
        remove_tree(self._root / record.id)

    def _read_all(self) -> Iterator[Record]:
        if not self._root.exists():
            return
        # Whoever may write there could have us kill and remove what is not a sandbox's.
        entries = sorted(os.scandir(private_folder(self._root)), key=lambda entry: entry.name)
        for entry in entries:
            if _ID.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                record = self._read(entry.name)
                if record is not None:
                    yield record

    def _read(self, id_: str) -> Record | None:
        folder = self._root / id_
        try:
            content = (folder / "record.json").read_bytes()
            version = _Version.model_validate_json(content).version
            if version > VERSION:
                return self._unread(id_, f"a later version of this program wrote its record ({version})")
            told = _OnDisk.model_validate_json(content)
            check_labels(told.labels)
        except (FileNotFoundError, IsADirectoryError, ValueError):
            return self._unread(id_)
        except OSError as error:
            return self._unread(id_, f"its record cannot be read: {error.strerror}")
        sockets = Path(told.sockets)
        if sockets.name != id_ or not sockets.is_absolute():
            sockets = self._sockets / id_
        return Record(id_, folder, sockets, told.created, told.owner, told.labels, told.resources)

    def _unread(self, id_: str, unknown: str = "") -> Record | None:
        folder = self._root / id_
        try:
            created = folder.lstat().st_mtime
        except FileNotFoundError:
            return None  # removed between the listing and now
        return Record(id_, folder, self._sockets / id_, created, None, unknown=unknown)


class _Version(BaseModel):
    """What every version of `record.json` says, but the first, which had none."""

    version: int = VERSION


class _OnDisk(BaseModel):
    """`record.json`."""

    version: int = VERSION
    owner: Owner
    labels: dict[str, str]
    created: float
    sockets: str
    resources: dict[str, Any]


def state_folder() -> Path:
    """Where this user's programs keep what must outlive them, ours in it."""
    home = os.environ.get("XDG_STATE_HOME", "")
    return (Path(home) if Path(home).is_absolute() else Path.home() / ".local" / "state") / "evolverpc"


def sockets_folder() -> Path:
    """Where this user's sockets are: a short path."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if Path(runtime).is_absolute() and is_private(Path(runtime)):
        return Path(runtime) / "evolverpc"
    return Path(f"/tmp/evolverpc-{os.getuid()}")  # noqa: S108  `private_folder` refuses one that is not ours


def private_folder(folder: Path) -> Path:
    """The folder, made with mode 0700 where it is not there.

    Raises:
        PermissionError: it is a link, belongs to another user, or others may write to it.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_private(folder):
        raise PermissionError(
            f"{folder} must be a folder of yours that nobody else may write to: remove it, or chmod 700"
        )
    return folder


def is_private(folder: Path) -> bool:
    """Whether it is a folder, no link, of this user's, and nobody else may write to it."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022


def check_labels(labels: Mapping[str, str]) -> None:
    """Raises `ValueError` where a label is not as `SandboxSpec.labels` says."""
    for key, value in labels.items():
        if _KEY.fullmatch(key) is None:
            raise ValueError(f"{key!r} is not the key of a label: small letters, digits and hyphens")
        if not (value.isprintable() and len(value) <= 63):
            raise ValueError(f"the value of label {key!r} must be at most 63 printable characters: {value!r}")


def _write(record: Record, folder: Path) -> None:
    assert record.owner is not None, "a record that cannot be read is never written"  # noqa: S101
    told = _OnDisk(
        owner=record.owner,
        labels=dict(record.labels),
        created=record.created,
        sockets=str(record.sockets),
        resources=dict(record.resources),
    )
    replace_file(folder / "record.json", json.dumps(told.model_dump(), indent=1))
