"""The server's own folder on disk, and the removal of folders whose server is gone."""

import hashlib
import logging
import os
import re
import uuid
from contextlib import ExitStack
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
        self._servers = home / "servers"
        self._held = ExitStack()
        self.only_server = False
        self.folder = self._servers / uuid.uuid4().hex
        self._worktree_path = re.compile(re.escape(str(self.folder / "trees")) + r"/[^/\s]+/files/?")

    def open(self) -> None:
        """Create it. Close it also if this fails."""
        self._servers.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._held.enter_context(lock_if_free(_lock_of(self.folder)))  # before the folder, which a sweep may find
        self.folder.mkdir(mode=0o700)
        for name in _SUBFOLDERS:
            (self.folder / name).mkdir()

    def sweep(self) -> None:
        """Remove the folders of servers that have ended."""
        self.only_server = True
        for lock in [*self._servers.glob("*.lock")]:
            if lock == _lock_of(self.folder):
                continue
            with lock_if_free(lock) as has_ended:
                if has_ended:
                    _remove_with_lock(lock.with_suffix(""))
                else:
                    self.only_server = False

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
        _remove_with_lock(self.folder)
        self._held.close()


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


def _lock_of(server: Path) -> Path:
    return server.with_suffix(".lock")


def _remove_with_lock(server: Path) -> None:
    remove(server)
    _lock_of(server).unlink(missing_ok=True)
