"""The quarantine in which one change of the repository is made, and out of which only a bundle comes."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from evolverpc_common.git import GitError
from rpc_server.worktrees.changes import LINK, NOTHING, SUBMODULE, Changes, Diff, changes_of, diff_of
from rpc_server.worktrees.lent import LentFiles
from rpc_server.worktrees.quarantine import Quarantine
from rpc_server.worktrees.repository import Repository, commit_ref

_NAME = "gepa-server"
_EMAIL = "gepa-server@localhost"


class Draft:
    """One change in the making, on top of the commit `parent`; `other` is the second parent of a merge.

    Everything of it is in `folder`, from `open` to `close`. Methods block, and raise `GitError`.
    """

    def __init__(self, repository: Repository, folder: Path, parent: str, other: str | None = None) -> None:
        self._place = Quarantine(repository, folder, (parent,) if other is None else (parent, other))

    @property
    def objects(self) -> Path:
        """What it adds to the repository's objects."""
        return self._place.objects

    def open(self) -> None:
        """Make it: the files are those of the (first) parent."""
        self._place.open()

    def close(self) -> None:
        """Remove it."""
        self._place.close()

    def apply_patch(self, diff: str) -> None:
        """Apply a unified diff to the files, none of which is on disk."""
        self._place.git("apply", "--cached", "--whitespace=nowarn", "-", stdin=diff.encode())

    def content(self, path: str) -> bytes | None:
        """What a file holds now; None where there is no such file."""
        mode, blob = self._entry(path)
        return None if mode in (NOTHING, SUBMODULE) else self._place.git("cat-file", "blob", blob)

    def write(self, path: str, content: bytes) -> None:
        """Replace a file's content, or add the file."""
        mode, _ = self._entry(path)
        if mode == LINK:
            raise GitError(f"{path!r} is a symbolic link")
        if mode == NOTHING:
            mode = "100644"
        blob = self._place.line("hash-object", "-w", "--stdin", f"--path={path}", stdin=content)
        self._place.git("update-index", "--add", "--cacheinfo", f"{mode},{blob},{path}")

    def has_the_other(self) -> bool:
        """Whether the other parent is the first one, or one that it builds on."""
        ours, theirs = self._place.parents
        return self._place.line("merge-base", ours, theirs) == theirs

    def merge(self) -> list[str]:
        """Take in what the other parent has; the paths with conflicts, whose content has conflict markers now."""
        arguments = ("--write-tree", "--name-only", "--no-messages", "-z", *self._place.parents)
        try:
            merged = self._place.git("-c", "merge.conflictStyle=merge", "merge-tree", *arguments)
        except GitError as error:
            if not error.output:
                raise
            merged = error.output  # with conflicts its exit status is not 0
        tree, *conflicts = merged.decode("utf-8", "surrogateescape").split("\0")
        self._place.git("read-tree", tree)
        return list(dict.fromkeys(path for path in conflicts if path))

    def subjects(self, pattern: str, most: int) -> tuple[list[str], list[str]]:
        """Of a merge, the subjects of the commits that each parent alone has and whose message matches.

        Of each, the `most` newest, oldest first.
        """
        ours, theirs = self._place.parents
        log = ("log", "--reverse", f"--max-count={most}", f"--grep={pattern}", "--format=%s", "-z")
        return self._place.fields(*log, f"{theirs}..{ours}"), self._place.fields(*log, f"{ours}..{theirs}")

    def conflicted(self, paths: Sequence[str]) -> list[str]:
        """Those of the paths that have a line which begins or ends a conflict."""
        return [path for path in paths if _has_markers(self.content(path) or b"")]

    def lend(self) -> LentFiles:
        """The files in a folder where somebody may change them."""
        return LentFiles(self._place)

    def changes(self) -> Changes:
        """Everything that differs from the (first) parent."""
        return changes_of(self._place)

    def diff(self, changes: Changes, limit: int) -> Diff:
        """These changes as a unified diff, the first `limit` bytes of it."""
        return diff_of(self._place, changes, limit)

    def commit(self, message: str) -> str:
        """Make it a commit; its full id, which follows from parents, files and message alone."""
        place = self._place
        dates = [int(place.line("log", "-1", "--format=%ct", parent)) for parent in place.parents]
        who = {"NAME": _NAME, "EMAIL": _EMAIL, "DATE": f"{max(dates) + 1} +0000"}
        env = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in who.items()}
        parents = [word for parent in place.parents for word in ("-p", parent)]
        tree = place.line("write-tree")
        utf8 = ("-c", "i18n.commitEncoding=UTF-8")
        return place.line(*utf8, "commit-tree", *parents, "-F", "-", tree, stdin=message.encode(), env=env)

    def differing(self, folder: Path) -> list[str]:
        """Files of the draft that are otherwise, or not at all, in a folder that they were checked out to."""
        index = self._place.folder / "differing-index"
        shutil.copyfile(self._place.index, index)
        env = {"GIT_INDEX_FILE": str(index), "GIT_WORK_TREE": str(folder)}
        quiet = ("--no-renames", "--no-ext-diff", "--no-textconv", "--ignore-submodules=all")
        return self._place.fields("diff", "--name-only", *quiet, "-z", env=env)

    def bundle(self, commit: str, branch: str) -> bytes:
        """A git bundle of that one branch, with what its commit has and the parents have not."""
        place, file = self._place, self._place.folder / "bundle"
        git = place.make_repository(place.folder / "bundle.git")
        env = {"GIT_OBJECT_DIRECTORY": str(place.objects)}
        git("update-ref", commit_ref(branch), commit, env=env)
        without = [f"^{parent}" for parent in place.parents]
        git("bundle", "create", "--quiet", file, commit_ref(branch), *without, env=env)
        return file.read_bytes()

    def _entry(self, path: str) -> tuple[str, str]:
        """The mode and the id of what is at a path; `NOTHING` and no id where there is none."""
        for entry in self._place.fields("ls-files", "--stage", "-z", "--", path):
            head, _, name = entry.partition("\t")
            if name == path:  # else it is in the folder of that name
                mode, blob, _ = head.split(" ")
                return mode, blob
        return NOTHING, ""


def _has_markers(content: bytes) -> bool:
    return any(line.startswith((b"<<<<<<< ", b">>>>>>> ")) for line in content.splitlines())
