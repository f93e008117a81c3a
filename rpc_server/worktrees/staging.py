"""The staging area of a change, isolated from the repository, and its difference from the parent commit."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evolverpc_common.git import Git
from rpc_server.worktrees.repository import LINK, SUBMODULE, UserRepository, exact_git
from rpc_server.worktrees.server_folder import remove

NOTHING = "000000"
"""The mode of a path without an entry."""

HEADER_BYTES = 64
"""Minimum bytes of a diff for a file whose content is not shown."""


_SHA1_DIGITS = 40


@dataclass(frozen=True)
class ChangedFile:
    """One path before and after; a rename is one path deleted and one added.

    `mode` and `old_mode` are octal, `NOTHING` for no file; sizes are in bytes. `target`: of a symbolic link.
    """

    path: str
    mode: str
    old_mode: str
    size: int
    old_size: int
    target: str | None = None

    @property
    def min_diff_bytes(self) -> int:
        """The bytes that it adds at least to a diff, if it were text."""
        return HEADER_BYTES + abs(self.size - self.old_size)


@dataclass(frozen=True)
class StagedDiff:
    """`text`: unified, cut at the requested limit. `size`: its full bytes, and those of binary files."""

    text: str
    size: int


class StagingArea:
    """A folder with an index, objects and files, on top of the commits `parents` of a repository.

    Everything that git writes in it stays in `folder`, from `open` to `close`. It reads the user's objects and
    configuration, without filters and merge drivers. Methods block, and raise `GitError`.
    """

    def __init__(self, repository: UserRepository, folder: Path, *parents: str) -> None:
        self._repository = repository
        self.folder = folder
        self.parents = parents
        self.files = folder / "files"
        self.index = folder / "index"
        self.objects = folder / "objects"
        places = {"INDEX_FILE": self.index, "OBJECT_DIRECTORY": self.objects, "WORK_TREE": self.files}
        self.git = repository.git.within(self.files, {f"GIT_{name}": str(path) for name, path in places.items()})

    def open(self) -> None:
        """Create it with the index of the first parent, without files on disk."""
        self.files.mkdir(parents=True)
        _borrow(self.objects, self._repository.objects)
        self.git("read-tree", self.parents[0])

    def close(self) -> None:
        """Remove it; what cannot be removed now is removed with the server's folder."""
        remove(self.folder)

    def make_repository(self, git_dir: Path) -> Git:
        """Create an empty repository that borrows these objects and shares the user's shallow boundary."""
        git = exact_git(self.folder, git_dir)
        kind = "sha1" if len(self.parents[0]) == _SHA1_DIGITS else "sha256"
        git("init", "--quiet", "--template=", "--initial-branch=evolve", f"--object-format={kind}")
        _borrow(git_dir / "objects", self.objects)
        shallow = self._repository.git_dir / "shallow"
        if shallow.exists():
            shutil.copyfile(shallow, git_dir / "shallow")
        return git

    def changes(self) -> tuple[ChangedFile, ...]:
        """Return everything that differs from the first parent."""
        parent = self.parents[0]
        fields = self.git.fields("diff-index", "--cached", "--raw", "--no-renames", "--no-abbrev", "-z", parent)
        rows = [(head[1:].split(" "), path) for head, path in zip(fields[::2], fields[1::2], strict=True)]
        wanted = {
            blob
            for (old_mode, mode, old, new, _), _ in rows
            for blob, of in ((old, old_mode), (new, mode))
            if of not in (NOTHING, SUBMODULE)
        }
        sizes = self._sizes(wanted)
        targets = self.git.objects(new for (_, mode, _, new, _), _ in rows if mode == LINK)
        return tuple(
            ChangedFile(
                path,
                mode,
                old_mode,
                sizes.get(new, 0),
                sizes.get(old, 0),
                os.fsdecode(targets[new]) if mode == LINK else None,
            )
            for (old_mode, mode, old, new, _), path in rows
        )

    def diff(self, changes: Sequence[ChangedFile], limit: int) -> StagedDiff:
        """Return these changes as a unified diff, its first `limit` bytes; binary files are only named."""
        plain = ("--cached", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color")
        counted = self.git.fields("diff-index", *plain, "--numstat", "-z", self.parents[0])
        binary = {entry.removeprefix("-\t-\t") for entry in counted if entry.startswith("-\t-\t")}
        file = self.folder / "diff"
        self.git("diff-index", *plain, "--patch", f"--output={file}", self.parents[0])
        with file.open("rb") as written:
            text = written.read(limit).decode("utf-8", "replace")
        unshown = sum(max(each.size, each.old_size) for each in changes if each.path in binary)
        return StagedDiff(text, file.stat().st_size + unshown)

    def _sizes(self, blobs: set[str]) -> dict[str, int]:
        asked = "".join(f"{blob}\n" for blob in blobs).encode()
        output = self.git("cat-file", "--batch-check=%(objectname) %(objectsize)", stdin=asked).decode()
        return {blob: int(size) for blob, size in (line.split(" ") for line in output.splitlines())}


def _borrow(objects: Path, others: Path) -> None:
    (objects / "info").mkdir(parents=True, exist_ok=True)
    (objects / "info" / "alternates").write_text(f"{others}\n")
