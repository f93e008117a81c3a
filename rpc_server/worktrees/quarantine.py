"""A place of its own for git to work in: an index, objects and files beside those of the user's repository."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from rpc_server.worktrees.git import Git
from rpc_server.worktrees.repository import Repository
from rpc_server.worktrees.state import remove

_SHA1_DIGITS = 40


class Quarantine:
    """A folder with an index, objects and files, on top of the commits `parents` of a repository.

    Everything git writes in it stays in `folder`, from `open` to `close`. Of the user's repository its objects and its
    configuration are used, without filters and merge drivers. Methods block, and raise `GitError`.
    """

    def __init__(self, repository: Repository, folder: Path, parents: tuple[str, ...]) -> None:
        self._repository = repository
        self.folder = folder
        self.parents = parents
        self.files = folder / "files"
        self.index = folder / "index"
        self.objects = folder / "objects"
        self._env = {
            "GIT_INDEX_FILE": str(self.index),
            "GIT_OBJECT_DIRECTORY": str(self.objects),
            "GIT_WORK_TREE": str(self.files),
        }

    def open(self) -> None:
        """Make it: the index is that of the first parent, the files are not on disk."""
        self.files.mkdir(parents=True)
        _borrow(self.objects, self._repository.objects)
        self.git("read-tree", self.parents[0])

    def close(self) -> None:
        """Remove it; what cannot be removed now goes with the server."""
        remove(self.folder)

    def git(self, *arguments: str | Path, stdin: bytes | None = None, env: Mapping[str, str] | None = None) -> bytes:
        """What git writes to its stdout, run in here."""
        environment = {**self._env, **(env or {})}
        return self._repository.git(*arguments, stdin=stdin, env=environment, folder=self.files)

    def line(self, *arguments: str | Path, stdin: bytes | None = None, env: Mapping[str, str] | None = None) -> str:
        """The one line it writes."""
        return self.git(*arguments, stdin=stdin, env=env).decode().rstrip("\n")

    def fields(self, *arguments: str, env: Mapping[str, str] | None = None) -> list[str]:
        """What it writes with a NUL after or between each."""
        text = self.git(*arguments, env=env).decode("utf-8", "surrogateescape")
        return text.removesuffix("\0").split("\0") if text else []

    def make_repository(self, git_dir: Path) -> Git:
        """An empty one that borrows the objects from here, and whose history ends where the user's does."""
        git = Git(self.folder, git_dir)
        kind = "sha1" if len(self.parents[0]) == _SHA1_DIGITS else "sha256"
        git("init", "--quiet", "--template=", "--initial-branch=evolve", f"--object-format={kind}")
        _borrow(git_dir / "objects", self.objects)
        shallow = self._repository.git_dir / "shallow"
        if shallow.exists():
            shutil.copyfile(shallow, git_dir / "shallow")
        return git


def _borrow(objects: Path, others: Path) -> None:
    (objects / "info").mkdir(parents=True, exist_ok=True)
    (objects / "info" / "alternates").write_text(f"{others}\n")
