"""A staged change: one edit of the repository in the making, isolated from it; only a bundle leaves it."""

import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from evolverpc_common.evolved_commits import MUTATION_AUTHOR
from evolverpc_common.files import remove_tree
from evolverpc_common.git import Git, GitError
from evolverpc_common.node_package_managers import MODULES
from rpc_server.worktrees.repository import LINK, SUBMODULE, UserRepository, commit_ref, exact_git
from rpc_server.worktrees.server_folder import remove

NOTHING = "000000"
"""The mode of a path without an entry."""

HEADER_BYTES = 64
"""Minimum bytes of a diff for a file whose content is not shown."""

MAX_ENTRIES = 1_000_000
"""Files and folders that may be in a folder when it is collected, including ignored ones."""

_SHA1_DIGITS = 40
_NAME, _EMAIL = MUTATION_AUTHOR["user.name"], MUTATION_AUTHOR["user.email"]
_CONFIG = f"[user]\n\tname = {_NAME}\n\temail = {_EMAIL}\n[gc]\n\tauto = 0\n"


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


class StagedChange:
    """A folder with an index, objects and files, on top of the commits `parents` of a repository: one, or two to merge.

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

    def diff(self, changes: Sequence[ChangedFile], limit: int) -> tuple[str, int]:
        """Return these changes as a unified diff, its first `limit` bytes, and the bytes of all of it.

        Binary files are only named, and counted with their bytes.
        """
        plain = ("--cached", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color")
        counted = self.git.fields("diff-index", *plain, "--numstat", "-z", self.parents[0])
        binary = {entry.removeprefix("-\t-\t") for entry in counted if entry.startswith("-\t-\t")}
        file = self.folder / "diff"
        self.git("diff-index", *plain, "--patch", f"--output={file}", self.parents[0])
        with file.open("rb") as written:
            text = written.read(limit).decode("utf-8", "replace")
        unshown = sum(max(each.size, each.old_size) for each in changes if each.path in binary)
        return text, file.stat().st_size + unshown

    def apply_patch(self, diff: str) -> None:
        """Apply a unified diff in the index; no file is written to disk."""
        self.git("apply", "--cached", "--whitespace=nowarn", "-", stdin=diff.encode())

    def content(self, path: str) -> bytes | None:
        """Return the current content of a file; None if there is no such file."""
        mode, blob = self._entry(path)
        return None if mode in (NOTHING, SUBMODULE) else self.git("cat-file", "blob", blob)

    def write(self, path: str, content: bytes) -> None:
        """Replace a file's content, or add the file."""
        mode, _ = self._entry(path)
        if mode == LINK:
            raise GitError(f"{path!r} is a symbolic link")
        if mode == NOTHING:
            mode = "100644"
        blob = self.git.line("hash-object", "-w", "--stdin", f"--path={path}", stdin=content)
        self.git("update-index", "--add", "--cacheinfo", f"{mode},{blob},{path}")

    def contains_other_parent(self) -> bool:
        """Report whether the other parent is the first one or its ancestor."""
        ours, theirs = self.parents
        return self.git.line("merge-base", ours, theirs) == theirs

    def merge(self) -> list[str]:
        """Merge the other parent; return the paths with conflicts, whose content has conflict markers."""
        arguments = ("--write-tree", "--name-only", "--no-messages", "-z", *self.parents)
        try:
            merged = self.git("-c", "merge.conflictStyle=merge", "merge-tree", *arguments)
        except GitError as error:
            if not error.output:
                raise
            merged = error.output  # conflicts have a non-zero exit status
        tree, *conflicts = merged.decode("utf-8", "surrogateescape").split("\0")
        self.git("read-tree", tree)
        return list(dict.fromkeys(path for path in conflicts if path))

    def subjects(self, pattern: str, most: int) -> tuple[list[str], list[str]]:
        """Return the subjects of commits that only one parent has and whose message matches, for each parent.

        Of each parent the `most` newest, oldest first.
        """
        ours, theirs = self.parents
        log = ("log", "--reverse", f"--max-count={most}", f"--grep={pattern}", "--format=%s", "-z")
        return self.git.fields(*log, f"{theirs}..{ours}"), self.git.fields(*log, f"{ours}..{theirs}")

    def with_conflict_markers(self, paths: Sequence[str]) -> list[str]:
        """Return those of the paths that contain a conflict marker."""
        marks = (b"<<<<<<< ", b">>>>>>> ")
        lines = {path: (self.content(path) or b"").splitlines() for path in paths}
        return [path for path in paths if any(line.startswith(marks) for line in lines[path])]

    def commit(self, message: str) -> str:
        """Commit; return the full id, which depends on parents, files and message alone."""
        dates = [int(self.git.line("log", "-1", "--format=%ct", parent)) for parent in self.parents]
        identity = {"NAME": _NAME, "EMAIL": _EMAIL, "DATE": f"{max(dates) + 1} +0000"}
        env = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in identity.items()}
        parents = [word for parent in self.parents for word in ("-p", parent)]
        tree = self.git.line("write-tree")
        utf8 = ("-c", "i18n.commitEncoding=UTF-8")
        return self.git.line(*utf8, "commit-tree", *parents, "-F", "-", tree, stdin=message.encode(), variables=env)

    def files_differing_in(self, folder: Path) -> list[str]:
        """Return files that differ, or are missing, in a folder they were checked out to."""
        quiet = ("--no-renames", "--no-ext-diff", "--no-textconv", "--ignore-submodules=all")
        return self.git.fields("diff", "--name-only", *quiet, "-z", variables={"GIT_WORK_TREE": str(folder)})

    def bundle(self, commit: str, branch: str) -> bytes:
        """Return a git bundle of one branch, with what its commit adds to the parents."""
        file = self.folder / "bundle"
        git = self.make_repository(self.folder / "bundle.git")
        env = {"GIT_OBJECT_DIRECTORY": str(self.objects)}
        git("update-ref", commit_ref(branch), commit, variables=env)
        without = [f"^{parent}" for parent in self.parents]
        git("bundle", "create", "--quiet", file, commit_ref(branch), *without, variables=env)
        return file.read_bytes()

    def _sizes(self, blobs: set[str]) -> dict[str, int]:
        asked = "".join(f"{blob}\n" for blob in blobs).encode()
        output = self.git("cat-file", "--batch-check=%(objectname) %(objectsize)", stdin=asked).decode()
        return {blob: int(size) for blob, size in (line.split(" ") for line in output.splitlines())}

    def _entry(self, path: str) -> tuple[str, str]:
        """Return mode and object id at a path; `NOTHING` and no id if there is none."""
        for entry in self.git.fields("ls-files", "--stage", "-z", "--", path):
            head, _, name = entry.partition("\t")
            if name == path:  # otherwise it is in the folder of that name
                mode, blob, _ = head.split(" ")
                return mode, blob
        return NOTHING, ""


def _borrow(objects: Path, others: Path) -> None:
    (objects / "info").mkdir(parents=True, exist_ok=True)
    (objects / "info" / "alternates").write_text(f"{others}\n")


class UncommittableFiles(Exception):
    """Edited files that cannot become a commit; the message gives the reason. `too_large`: by size."""

    def __init__(self, reason: str, *, too_large: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.too_large = too_large


class EditableFiles:
    """The files of a staged change on disk, with a repository of their own whose HEAD is the (first) parent.

    That repository is for reference: it borrows the user's objects, and nothing written to it is read. Git uses the
    staged change's index, even if `.git` changes.
    """

    def __init__(self, staged: StagedChange) -> None:
        self._staged = staged
        staged.git("checkout-index", "--all", "--force", "--quiet", "--index")
        self._sizes = dict(self._entries())
        own = staged.files / ".git"
        staged.make_repository(own)("update-ref", "HEAD", staged.parents[0])
        shutil.copyfile(staged.index, own / "index")
        with (own / "config").open("a") as config:
            config.write(_CONFIG)
        if len(staged.parents) > 1:
            (own / "MERGE_HEAD").write_text(f"{staged.parents[1]}\n")

    @property
    def folder(self) -> Path:
        """The folder of the files."""
        return self._staged.files

    def collect(self, max_bytes: int, links: Sequence[Path]) -> None:
        """Update the index from the folder; ignored files are left out.

        `links`: symbolic links, and folders of links to Node packages, that are no part of the files; they are removed.

        Raises:
            UncommittableFiles: it cannot be read or kept, or its diff certainly exceeds `max_bytes`.
        """
        staged, folder = self._staged, self.folder
        if folder.is_symlink() or not folder.is_dir():
            raise UncommittableFiles("the working directory is gone")
        try:
            folder.chmod(0o700)
            remove_tree(folder / ".git")
            for link in links:
                if not link.parent.resolve().is_relative_to(folder.resolve()):
                    continue
                if link.is_symlink():
                    link.unlink()
                elif link.name == MODULES and link.is_dir():
                    remove_tree(link)
        except OSError as error:
            raise UncommittableFiles(f"what is no part of the files cannot be removed: {error.strerror}") from None
        sizes = dict(self._entries())
        try:
            added = staged.git.fields("ls-files", "--others", "--exclude-standard", "-z")
            # Submodules are not looked into: git would run what is configured in their folders.
            touched = staged.git.fields("diff-files", "--name-only", "--no-renames", "--ignore-submodules=all", "-z")
            nested = next((path for path in added if path.endswith("/")), None)
            if nested is not None:
                raise UncommittableFiles(f"{nested!r} has a git repository of its own")
            changed = list(dict.fromkeys([*added, *touched]))
            least = sum(HEADER_BYTES + abs(sizes.get(path, 0) - self._sizes.get(path, 0)) for path in changed)
            if least > max_bytes:
                raise UncommittableFiles(
                    f"{len(changed)} files were changed, by {least} bytes at least; {max_bytes} are allowed",
                    too_large=True,
                )
            # Before the others: a file may be a folder now, or be behind a link.
            staged.git(
                "update-index", "--force-remove", "-z", "--stdin", stdin=_nul_separated(set(changed) - sizes.keys())
            )
            staged.git("update-index", "--add", "-z", "--stdin", stdin=_nul_separated(set(changed) & sizes.keys()))
        except GitError as error:
            raise UncommittableFiles(f"git cannot take the files as they are: {error}") from None

    def _entries(self) -> Iterator[tuple[str, int]]:
        """Yield path and bytes of everything in the folder but folders; links are not followed."""
        folders = [""]
        count = 0
        while folders:
            inside = folders.pop()
            try:
                with os.scandir(self.folder / inside) as entries:
                    for entry in entries:
                        count += 1
                        if count > MAX_ENTRIES:
                            raise UncommittableFiles(
                                f"there are more than {MAX_ENTRIES} files and folders", too_large=True
                            )
                        path = f"{inside}/{entry.name}" if inside else entry.name
                        status = entry.stat(follow_symlinks=False)
                        if stat.S_ISDIR(status.st_mode):
                            if status.st_mode & stat.S_IRWXU != stat.S_IRWXU:  # git takes it as deleted
                                (self.folder / path).chmod(stat.S_IMODE(status.st_mode) | stat.S_IRWXU)
                            folders.append(path)
                        else:
                            yield path, status.st_size
            except OSError as error:
                raise UncommittableFiles(f"{inside!r:.200} cannot be read: {error.strerror}") from None


def _nul_separated(paths: Iterable[str]) -> bytes:
    return "".join(f"{path}\0" for path in sorted(paths)).encode("utf-8", "surrogateescape")
