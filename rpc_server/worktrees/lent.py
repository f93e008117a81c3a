"""A draft's files in a folder that others may do as they like with, and what is taken back from it."""

import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from evolverpc_common.git import GitError
from rpc_server.worktrees.changes import HEADER_BYTES
from rpc_server.worktrees.quarantine import Quarantine
from rpc_server.worktrees.removal import remove_folder

MAX_ENTRIES = 1_000_000
"""Files and folders that may be in a folder when it is taken back, those that git ignores among them."""

_CONFIG = """
[user]
\tname = gepa-server
\temail = gepa-server@localhost
[gc]
\tauto = 0
"""


class Untakeable(Exception):
    """What is in a lent folder cannot become a commit; the message says what and why. `too_large`: for its size."""

    def __init__(self, reason: str, *, too_large: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.too_large = too_large


class LentFiles:
    """The files of a quarantine on disk, with a repository of their own whose HEAD is the (first) parent.

    That repository is for looking things up: it borrows the user's objects, and nothing that is written to it is ever
    read. Git works in the folder with the quarantine's index, whatever was done to `.git`.
    """

    def __init__(self, place: Quarantine) -> None:
        self._place = place
        place.git("checkout-index", "--all", "--force", "--quiet", "--index")
        self._sizes = dict(self._entries())
        own = place.files / ".git"
        place.make_repository(own)("update-ref", "HEAD", place.parents[0])
        shutil.copyfile(place.index, own / "index")
        with (own / "config").open("a") as config:
            config.write(_CONFIG)
        if len(place.parents) > 1:
            (own / "MERGE_HEAD").write_text(f"{place.parents[1]}\n")

    @property
    def folder(self) -> Path:
        """Where they are."""
        return self._place.files

    def take_back(self, max_bytes: int, links: Sequence[Path]) -> None:
        """Put what is in the folder now into the index; what git ignores stays out.

        `links`: where in it somebody put symbolic links that are no part of the files; they go.

        Raises:
            Untakeable: it cannot be read or kept, or is certain to be more than `max_bytes` of a diff.
        """
        place, folder = self._place, self.folder
        if folder.is_symlink() or not folder.is_dir():
            raise Untakeable("the working directory is gone")
        try:
            folder.chmod(0o700)
            _remove(folder / ".git")
            for link in links:
                if link.is_symlink() and link.parent.resolve().is_relative_to(folder.resolve()):
                    link.unlink()
        except OSError as error:
            raise Untakeable(f"what is no part of the files cannot be removed: {error.strerror}") from None
        sizes = dict(self._entries())
        try:
            added = place.fields("ls-files", "--others", "--exclude-standard", "-z")
            # Submodules are not looked into: git would run what is configured in their folders.
            touched = place.fields("diff-files", "--name-only", "--no-renames", "--ignore-submodules=all", "-z")
            nested = next((path for path in added if path.endswith("/")), None)
            if nested is not None:
                raise Untakeable(f"{nested!r} has a git repository of its own")
            changed = list(dict.fromkeys([*added, *touched]))
            least = sum(HEADER_BYTES + abs(sizes.get(path, 0) - self._sizes.get(path, 0)) for path in changed)
            if least > max_bytes:
                raise Untakeable(
                    f"{len(changed)} files were changed, by {least} bytes at least; {max_bytes} are allowed",
                    too_large=True,
                )
            # Before the others: a file may be a folder now, or be behind a link.
            place.git("update-index", "--force-remove", "-z", "--stdin", stdin=_listed(set(changed) - sizes.keys()))
            place.git("update-index", "--add", "-z", "--stdin", stdin=_listed(set(changed) & sizes.keys()))
        except GitError as error:
            raise Untakeable(f"git cannot take the files as they are: {error}") from None

    def _entries(self) -> Iterator[tuple[str, int]]:
        """Path and bytes of everything in the folder but folders, links not followed."""
        folders = [""]
        count = 0
        while folders:
            inside = folders.pop()
            try:
                with os.scandir(self.folder / inside) as entries:
                    for entry in entries:
                        count += 1
                        if count > MAX_ENTRIES:
                            raise Untakeable(f"there are more than {MAX_ENTRIES} files and folders", too_large=True)
                        path = f"{inside}/{entry.name}" if inside else entry.name
                        status = entry.stat(follow_symlinks=False)
                        if stat.S_ISDIR(status.st_mode):
                            _make_readable(self.folder / path, status.st_mode)
                            folders.append(path)
                        else:
                            yield path, status.st_size
            except OSError as error:
                raise Untakeable(f"{inside!r:.200} cannot be read: {error.strerror}") from None


def _make_readable(folder: Path, mode: int) -> None:
    """Git passes over what it cannot read, and would take it for deleted."""
    if mode & stat.S_IRWXU != stat.S_IRWXU:
        folder.chmod(stat.S_IMODE(mode) | stat.S_IRWXU)


def _listed(paths: Iterable[str]) -> bytes:
    return "".join(f"{path}\0" for path in sorted(paths)).encode("utf-8", "surrogateescape")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        remove_folder(path)
    else:
        path.unlink(missing_ok=True)
