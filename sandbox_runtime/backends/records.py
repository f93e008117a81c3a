"""Records on disk of the sandboxes that processes of this machine started, so that others can sweep them.

    $XDG_STATE_HOME/evolverpc/sandboxes/<backend>/<id>/record.json     (~/.local/state without that variable)
    $XDG_RUNTIME_DIR/evolverpc/<id>/                                   (/tmp/evolverpc-<uid>/ without it)

The first holds the owner and what must be freed; the second holds sockets, whose paths must be short. Both are private
to the user. A session of sandboxes has such folders too, with its endpoints file in the second.
"""

import contextlib
import logging
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from evolverpc_common.files import remove_tree, replace_file
from evolverpc_common.processes import ProcessIdentity
from sandbox_runtime.api.sandbox import SandboxError, SandboxInfo

_ID = re.compile(r"[a-z0-9]{4,32}")
_KEY = re.compile(r"[a-z0-9-]{1,63}")
_FILE, _SWEPT = "record.json", "swept"
_MAKING_S = 60.0
"""Seconds after which a record that is still being made counts as left by a killed process."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SandboxRecord:
    """One sandbox on disk. `folder`: its own, with the record in it. `sockets`: its folder for sockets.

    `owner`: None if the record cannot be read, perhaps as a later version of this program wrote it; then only `id`, the
    folders and `created` are known, and it is never swept. Its backend may keep more in `folder`; never a secret.
    """

    id: str
    folder: Path
    sockets: Path
    created: float
    owner: ProcessIdentity | None
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_orphan(self) -> bool:
        """Whether its owner has certainly ended, or its removal was begun."""
        return self.owner.is_gone() if self.owner is not None else not (self.folder / _FILE).exists()

    @property
    def server(self) -> Path:
        """The socket of its server. Raises `OSError` if the path is too long for one."""
        return socket_path(self.sockets, "server")

    def found(self) -> SandboxInfo:
        """Return it as `Runtime.found` lists it."""
        owner = "unknown: its record cannot be read" if self.owner is None else str(self.owner)
        return SandboxInfo(id=self.id, labels=self.labels, created=self.created, orphan=self.is_orphan, owner=owner)


class SandboxRecords:
    """The records of one backend. `state`, `sockets`: replace the folders that the environment names."""

    def __init__(self, backend: str, *, state: Path | None = None, sockets: Path | None = None) -> None:
        self._root = (state or state_folder()) / "sandboxes" / backend
        self._sockets = sockets or sockets_folder()

    def add(self, labels: Mapping[str, str]) -> SandboxRecord:
        """Return a new record, owned by this process, with an id and folders of its own.

        Raises:
            ValueError: a label is not as `SandboxSpec.labels` requires.
            OSError: a folder cannot be made, or belongs to another user.
        """
        check_labels(labels)
        root, short = private_folder(self._root), private_folder(self._sockets)
        id_ = secrets.token_hex(6)
        sockets = short / id_
        owner = ProcessIdentity.this_process()
        kept = _OnDisk(owner=owner, labels=dict(labels), created=time.time(), sockets=str(sockets))
        record = SandboxRecord(id_, root / id_, sockets, kept.created, owner, kept.labels)
        # Made under another name and renamed, so that no process lists a folder without its record.
        making = root / f".{id_}"
        for left in root.glob(".*"):
            with contextlib.suppress(FileNotFoundError):  # another process removed it
                if time.time() - left.lstat().st_mtime > _MAKING_S:
                    remove_tree(left)
        try:
            making.mkdir(mode=0o700)
            replace_file(making / _FILE, kept.model_dump_json(indent=1))
            making.rename(record.folder)
            sockets.mkdir(mode=0o700)
        except BaseException:
            for folder in (making, record.folder):
                shutil.rmtree(folder, ignore_errors=True)
            raise
        return record

    def all(self, labels: Mapping[str, str] | None = None) -> list[SandboxRecord]:
        """Return every record with these labels; damaged ones have none."""
        return [record for record in self._read_all() if (labels or {}).items() <= record.labels.items()]

    def free(self, id_: str, end: Callable[[SandboxRecord], None]) -> None:
        """Free a sandbox of any process: `end` ends everything of it but its record. Blocks.

        Raises:
            SandboxError: its record cannot be read. Others: as `end`, `remove`.
        """
        record = self._read(id_) if _ID.fullmatch(id_) else None
        if record is None:
            return
        if record.owner is None and not record.is_orphan:
            raise SandboxError(f"its record cannot be read: remove {record.folder} if nothing of it runs any more")
        with contextlib.suppress(FileNotFoundError):  # then it is gone already
            (record.folder / _SWEPT).touch()  # before anything of it is ended, so that its owner knows why
        end(record)
        self.remove(record)

    def is_swept(self, record: SandboxRecord) -> bool:
        """Return whether it was swept, or is being swept."""
        return not record.folder.exists() or (record.folder / _SWEPT).exists()

    def remove(self, record: SandboxRecord) -> None:
        """Delete its folders; call it when everything else of it is freed."""
        if _ID.fullmatch(record.id) is None:
            raise ValueError(f"{record.id!r} is not the id of a sandbox")
        for sockets in {record.sockets, self._sockets / record.id}:
            if is_private(sockets.parent):
                remove_tree(sockets)
        remove_tree(self._root / record.id)

    def remove_orphans(self) -> None:
        """Delete the folders of every record whose owner has ended; log what cannot be deleted."""
        for left in self.all():
            if left.is_orphan:
                try:
                    self.remove(left)
                except OSError as error:
                    _log.warning("what a killed process has left: %s", error)

    def _read_all(self) -> Iterator[SandboxRecord]:
        if not self._root.exists():
            return
        # A user who may write there could make this process kill and remove what is not a sandbox's.
        entries = sorted(os.scandir(private_folder(self._root)), key=lambda entry: entry.name)
        for entry in entries:
            if _ID.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                record = self._read(entry.name)
                if record is not None:
                    yield record

    def _read(self, id_: str) -> SandboxRecord | None:
        folder = self._root / id_
        try:
            parsed = _OnDisk.model_validate_json((folder / _FILE).read_bytes())
            check_labels(parsed.labels)
        except (OSError, ValueError):
            try:
                return SandboxRecord(id_, folder, self._sockets / id_, folder.lstat().st_mtime, None)
            except FileNotFoundError:
                return None  # removed between the listing and now
        sockets = Path(parsed.sockets)
        if sockets.name != id_ or not sockets.is_absolute():
            sockets = self._sockets / id_
        return SandboxRecord(id_, folder, sockets, parsed.created, parsed.owner, parsed.labels)


class _OnDisk(BaseModel):
    """The content of `record.json`."""

    version: Literal[1] = 1
    owner: ProcessIdentity
    labels: dict[str, str]
    created: float
    sockets: str


@contextlib.contextmanager
def owned_folders(kind: str) -> Iterator[SandboxRecord]:
    """Make the two folders of a record for files of this process, and remove them after the block.

    Those of this kind that a killed process left are removed too, if that is possible. Raises `OSError`.
    """
    records = SandboxRecords(kind)
    records.remove_orphans()
    record = records.add({})
    try:
        yield record
    finally:
        records.remove(record)


def socket_path(folder: Path, name: str) -> Path:
    """Return the path of a socket. Raises `OSError` if it is too long for one on some system."""
    if len(os.fsencode(path := folder / name)) > 103:
        raise OSError(f"{path} is too long for a socket: set XDG_RUNTIME_DIR to a shorter folder")
    return path


def state_folder() -> Path:
    """Return the folder of this user for state that outlives processes."""
    home = os.environ.get("XDG_STATE_HOME", "")
    return (Path(home) if Path(home).is_absolute() else Path.home() / ".local" / "state") / "evolverpc"


def sockets_folder() -> Path:
    """Return the folder of this user for sockets: a short path."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if Path(runtime).is_absolute() and is_private(Path(runtime)):
        return Path(runtime) / "evolverpc"
    return Path(f"/tmp/evolverpc-{os.getuid()}")  # noqa: S108  `private_folder` refuses one that is not ours


def private_folder(folder: Path) -> Path:
    """Return the folder, made with mode 0700 if it is missing.

    Raises:
        PermissionError: it is a link, belongs to another user, or others may write to it.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_private(folder):
        raise PermissionError(
            f"{folder} must be a folder of yours that no other user may write to: remove it, or chmod 700"
        )
    return folder


def is_private(folder: Path) -> bool:
    """Return whether it is a folder of this user, not a link, and not writable by others."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022


def check_labels(labels: Mapping[str, str]) -> None:
    """Raise `ValueError` if a label is not as `SandboxSpec.labels` requires."""
    for key, value in labels.items():
        if _KEY.fullmatch(key) is None:
            raise ValueError(f"{key!r} is not the key of a label: small letters, digits and hyphens")
        if not (value.isprintable() and len(value) <= 63):
            raise ValueError(f"the value of label {key!r} must be at most 63 printable characters: {value!r}")
