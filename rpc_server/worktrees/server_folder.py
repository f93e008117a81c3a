"""The server's own folder on disk, and the removal of folders whose server is gone."""

import fcntl
import hashlib
import logging
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from evolverpc_common.files import lock_if_free, remove_tree
from evolverpc_common.settings.sources import SettingsError

logger = logging.getLogger(__name__)

CACHE = "evolverpc"

_SUBFOLDERS = ("trees", "drafts")


def cache_folder() -> Path:
    """Return the folder in which servers of this user keep reproducible data."""
    return user_cache_path(CACHE)


class ServerFolder:
    """This server's folder among those of all servers of one repository; removed when it is closed.

    `home`: the folder of them all. `only_server`: no other server of the repository ran at the sweep. Methods block.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._servers = home / "servers"
        self._lock: int | None = None
        self.only_server = False
        self.folder = self._servers / uuid.uuid4().hex
        self._worktree_path = re.compile(re.escape(str(self.folder / "trees")) + r"/[^/\s]+/files/?")

    def open(self) -> None:
        """Create it. Close it also if this fails."""
        self._servers.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _locked(self._home / "lock"):  # otherwise a sweep may find the folder before its lock is held
            self.folder.mkdir(mode=0o700)
            self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for name in _SUBFOLDERS:
            (self.folder / name).mkdir()

    def sweep(self) -> None:
        """Remove the folders of servers that have ended."""
        with _locked(self._home / "lock"):
            others = [server for server in self._servers.iterdir() if server != self.folder]
            left = [server for server in others if not _still_runs(server)]
            self.only_server = len(left) == len(others)
        for server in left:  # without the lock, as this may take long
            remove(server)

    def new_folder(self, kind: str) -> Path:
        """Return an unused path in it; `kind`: `trees` or `drafts`."""
        return self.folder / kind / uuid.uuid4().hex[:12]

    def without_paths(self, value: Any) -> Any:
        """Return the JSON value with every path into a worktree made relative to it."""
        if isinstance(value, str):
            return self._worktree_path.sub("", value)
        if isinstance(value, dict):
            return {key: self.without_paths(member) for key, member in value.items()}
        if isinstance(value, list):
            return [self.without_paths(member) for member in value]
        return value

    def close(self) -> None:
        """Remove everything; do nothing if it was never created."""
        if self._lock is None:
            return
        for name in _SUBFOLDERS:
            remove(self.folder / name)
        with _locked(self._home / "lock"):  # otherwise a starting server would sweep it as well
            remove(self.folder)
        os.close(self._lock)
        self._lock = None


def servers_folder(git_dir: Path, given: Path | None) -> Path:
    """Return the absolute folder of a repository's servers: `given`, else one in the user's cache.

    Raises:
        SettingsError: git could not be kept in there.
    """
    if given is None:
        given = cache_folder() / "trees" / hashlib.sha256(os.fsencode(git_dir)).hexdigest()[:16]
    home = given.resolve()
    if os.pathsep in str(home):
        raise SettingsError(f"`tree_dir`: {home} has a {os.pathsep!r} in it, which separates paths in variables")
    return home


def remove(folder: Path) -> None:
    """Remove a folder; log what cannot be removed now, which the server's end or a later start removes."""
    try:
        remove_tree(folder)
    except OSError as error:
        logger.warning("cannot remove %s: %s", folder, error)


def _still_runs(server: Path) -> bool:
    with lock_if_free(server / "lock") as is_free:
        return not is_free


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
