"""The user's repository: objects and branches are read from it and added to it; nothing else in it changes."""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from evolverpc_common.evolved_commits import ANSWERS, BRANCH, BRANCHES, read_bundle
from evolverpc_common.git import Git, GitError, alternate_objects, filters_off, ssh_variables
from evolverpc_common.settings.sources import SettingsError

COMMITS = "refs/evolverpc-commits/"
"""The prefix of refs that keep a commit, under its id, if its branch exists at another commit."""

LINK = "120000"
SUBMODULE = "160000"
"""Modes of entries that are not files: a symbolic link, a submodule."""

_PUSH_TIMEOUT_S = 60.0

_SETTINGS = {
    "core.autocrlf": "false",  # a worktree has the commit's exact bytes
    "core.safecrlf": "false",
    "core.fileMode": "true",
    "core.symlinks": "true",
    "core.protectHFS": "true",
    "core.protectNTFS": "true",
    "core.logAllRefUpdates": "false",
    "commit.gpgSign": "false",
    "fetch.fsckObjects": "true",  # bundles are made on other machines
    "diff.noprefix": "false",
    "diff.mnemonicPrefix": "false",
}
"""Settings for worktrees that hold exactly the bytes of a commit."""

_MERGE_AS_TEXT = "git merge-file --marker-size=%L -L ours -L base -L theirs %A %O %B"
"""Git's own merge if no driver is configured; without a command the driver would be an error."""

_CONCURRENT_CHECKOUTS = threading.Semaphore(4)
"""Checkouts at the same time: with more, the file system makes each of them slower."""


_LISTED_COMMITS = 4
"""Commits whose entries are kept: they never change, and a mutation reads those of two commits several times."""


@dataclass(frozen=True, slots=True)
class _TreeEntry:
    """A path in a commit, and its object."""

    path: str
    mode: str
    id: str

    @property
    def is_file(self) -> bool:
        return self.mode != SUBMODULE


def exact_git(folder: Path, git_dir: Path | None = None, settings: Mapping[str, str] | None = None) -> Git:
    """Return git for worktrees, without limit of time. `git_dir`: the common folder of objects and refs, if known."""
    variables = {"GIT_ATTR_NOSYSTEM": "1"} | ({} if git_dir is None else {"GIT_DIR": str(git_dir)})
    return Git(folder, settings={**(settings or {}), **_SETTINGS}, variables=variables, network=True, timeout_s=None)


class NoRepository(SettingsError):
    """There is no usable repository; the message names the next step."""


class BranchTaken(GitError):
    """A branch of this name exists."""


class UserRepository:
    """The git repository that `folder` is in. Every method blocks, and may be called from any thread.

    `top`: the top folder of its working tree. `prefix`: `folder` relative to it, `""` for the same folder.

    Raises:
        NoRepository: `folder` is in none, or in one without a working tree or a commit.
    """

    def __init__(self, folder: Path) -> None:
        folder = folder.resolve()
        own = exact_git(folder)
        try:
            self.top = Path(own.line("rev-parse", "--show-toplevel"))
            self.git_dir = (folder / own.line("rev-parse", "--git-common-dir")).resolve()
            names = own.fields("config", "--list", "--name-only", "-z")
        except GitError as error:
            advice = "" if "dubious ownership" in str(error) else "; worktrees need one: git init, git add, git commit"
            raise NoRepository(f"{folder}: {error}{advice}") from None
        # The commands of filters and merge drivers run in a tree, so they may run or import files that an agent wrote.
        drivers = [name for name in names if name.startswith("merge.") and name.endswith(".driver")]
        off = filters_off(names) | dict.fromkeys(drivers, _MERGE_AS_TEXT)
        inside = folder.relative_to(self.top.resolve()).as_posix()
        self.prefix = "" if inside == "." else inside
        # With the user's settings, and the index and HEAD of this working tree, which may be a linked one.
        self._own = Git(folder, settings=off)
        self.git = exact_git(self.top, self.git_dir, off)
        self.has = self.git.has
        self._filters = {name.removeprefix("filter.").rpartition(".")[0] for name in off if name.startswith("filter.")}
        self._import_lock = threading.Lock()
        self._entries = lru_cache(_LISTED_COMMITS)(self._list_entries)

    @property
    def objects(self) -> Path:
        """The folder of its objects."""
        return self.git_dir / "objects"

    def head(self) -> tuple[str, str]:
        """Return the checked-out branch, `detached` if there is none, and its commit's full id.

        Raises:
            NoRepository: there is no commit yet.
        """
        try:
            commit = self._own.line("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        except GitError:
            raise NoRepository(f"{self.top} has no commit yet: git add, git commit") from None
        try:
            return self._own.line("symbolic-ref", "--quiet", "--short", "HEAD"), commit
        except GitError:
            return "detached", commit

    def changed(self) -> list[str]:
        """Return tracked paths that differ from HEAD in the working tree or the index, by the user's settings."""
        return self._own.changed()

    def untracked(self) -> int:
        """Count the untracked files and folders below `folder` that git does not ignore."""
        return len(self._own.fields("ls-files", "--others", "--exclude-standard", "--directory", "-z"))

    def files(self, commit: str, objects: Path | None = None) -> list[str]:
        """Return every path in the commit. `objects`: a further object folder, as everywhere here."""
        return [entry.path for entry in self._entries(commit, objects)]

    def ids(self, commit: str, objects: Path | None = None) -> dict[str, str]:
        """Return the ids of the contents of the commit's files, by path."""
        return {entry.path: entry.id for entry in self._entries(commit, objects) if entry.is_file}

    def submodules(self, commit: str) -> list[str]:
        """Return the paths of submodules in the commit."""
        return [entry.path for entry in self._entries(commit, None) if entry.mode == SUBMODULE]

    def filters(self, commit: str) -> list[str]:
        """Return each file of the commit with its filter, if that is configured or of Git LFS: `a.txt (lfs)`."""
        paths = "".join(f"{path}\0" for path in self.files(commit)).encode("utf-8", "surrogateescape")
        found = self.git.fields("check-attr", "-z", "--stdin", "filter", stdin=paths)
        named = zip(found[::3], found[2::3], strict=True)
        return [f"{path} ({name})" for path, name in named if name in self._filters | {"lfs"}]

    def read_all(self, commit: str, paths: Iterable[str], objects: Path | None = None) -> dict[str, bytes]:
        """Return the contents of the given paths that are files in the commit; of a link, its target."""
        wanted = set(paths)
        entries = [entry for entry in self._entries(commit, objects) if entry.path in wanted and entry.is_file]
        contents = self.git.objects((entry.id for entry in entries), _with_objects(objects))
        return {entry.path: contents[entry.id] for entry in entries}

    def check_out(self, commit: str, folder: Path, objects: Path | None = None) -> None:
        """Write the commit's files into `folder`, which is created, without a `.git`.

        Meanwhile a file of the same name with `.index` is beside it.

        Raises:
            GitError: there is no such commit, or its files cannot be written.
        """
        index = folder.with_name(f"{folder.name}.index")
        variables = {"GIT_INDEX_FILE": str(index), "GIT_WORK_TREE": str(folder), **_with_objects(objects)}
        folder.mkdir(parents=True)
        git = self.git.within(folder, variables)
        git("read-tree", commit)
        with _CONCURRENT_CHECKOUTS:
            git("checkout-index", "--all", "--force", "--quiet")
        index.unlink()

    def branch(self, name: str) -> str | None:
        """Return the full id of a branch's commit; None if there is no such branch."""
        return self._commit_at(commit_ref(name))

    def answer(self, branch: str) -> bytes | None:
        """Return what `publish` kept with a branch; None if it kept nothing."""
        blob = self._commit_at(_answer_ref(branch))
        return None if blob is None else self.git("cat-file", "blob", blob)

    def import_bundle(self, bundle: bytes) -> str:
        """Import the commit of a bundle with one branch `evolve/<run>/<number>`; return its full id.

        A branch that exists at another commit stays, and a ref of its own keeps the commit. Importing twice changes
        nothing.

        Raises:
            GitError: it is no such bundle, or its prerequisites are missing.
        """
        with self._import_lock:
            branch, commit = self._unpack(bundle)
            if self.branch(branch) is None:
                try:
                    self._create(branch, commit, None)
                except GitError:
                    if self.branch(branch) is None:  # otherwise another server has just created it
                        raise
            if self.branch(branch) != commit:
                self.git.update_refs([f"update {COMMITS}{commit} {commit}"])
        return commit

    def publish(self, bundle: bytes, answer: bytes) -> str:
        """Create the branch of a bundle as `import_bundle` does, and keep `answer` with it, atomically.

        Raises:
            BranchTaken: the branch exists, at any commit.
            GitError: as for `import_bundle`.
        """
        with self._import_lock:
            branch, commit = self._unpack(bundle)
            try:
                self._create(branch, commit, answer)
            except GitError as error:
                if self.branch(branch) is None:
                    raise
                raise BranchTaken(f"there is a branch {branch} already") from error
        return commit

    def withdraw(self, branch: str, answer: bytes) -> None:
        """Remove a branch that `publish` made with this answer; do nothing if it has another, or is gone."""
        with self._import_lock:
            commit, kept = self.branch(branch), self._commit_at(_answer_ref(branch))
            if commit is not None and kept is not None and self.answer(branch) == answer:
                self.git.update_refs([f"delete {commit_ref(branch)} {commit}", f"delete {_answer_ref(branch)} {kept}"])

    def push(self, commit: str, branch: str, remote: str) -> None:
        """Push a commit as a branch of the remote, within a minute.

        Raises:
            GitTimeout: it takes longer, and may have succeeded.
            GitError: it fails.
        """
        self._push(remote, f"{commit}:{commit_ref(branch)}")

    def unpush(self, commit: str, branch: str, remote: str) -> None:
        """Delete a branch at this commit from the remote. Raises as `push` does, also if it is not there."""
        ref = commit_ref(branch)
        self._push(f"--force-with-lease={ref}:{commit}", "--delete", remote, ref)

    def sweep(self) -> None:
        """Remove lock files left by a killed git; only while no other server runs."""
        for refs in (self.git_dir / "refs" / "heads" / BRANCHES, self.git_dir / ANSWERS, self.git_dir / COMMITS):
            for lock in refs.rglob("*.lock"):
                lock.unlink(missing_ok=True)

    def _commit_at(self, ref: str) -> str | None:
        """Return the id at a ref, by its full name; None if there is no such ref."""
        return self.git.refs(ref).get(ref)

    def _unpack(self, bundle: bytes) -> tuple[str, str]:
        given = read_bundle(bundle, self.has)
        branch, commit = _only_branch(given.heads)
        if not self.has(commit):
            # Loose: git would be slow with thousands of packs.
            self.git("unpack-objects", "-q", "--strict", stdin=given.pack)
            if not self.has(commit):
                raise GitError(f"the bundle does not hold its commit {commit}")
        return branch, commit

    def _create(self, branch: str, commit: str, answer: bytes | None) -> None:
        """Create a branch; delete the answer of an earlier branch of that name."""
        commands = [f"create {commit_ref(branch)} {commit}"]
        if answer is not None:
            blob = self.git.line("hash-object", "-w", "--stdin", stdin=answer)
            commands.append(f"update {_answer_ref(branch)} {blob}")
        elif self._commit_at(_answer_ref(branch)) is not None:
            commands.append(f"delete {_answer_ref(branch)}")
        self.git.update_refs(commands)

    def _push(self, *arguments: str) -> None:
        variables = ssh_variables(self.top)
        self.git("push", "--quiet", "--no-verify", *arguments, variables=variables, timeout_s=_PUSH_TIMEOUT_S)

    def _list_entries(self, commit: str, objects: Path | None) -> list[_TreeEntry]:
        listed = self.git.fields("ls-tree", "-r", "-z", commit, variables=_with_objects(objects))
        parts = [entry.partition("\t") for entry in listed]
        return [_TreeEntry(path, mode, id_) for head, _, path in parts for mode, _, id_ in (head.split(" "),)]


def _only_branch(heads: dict[str, str]) -> tuple[str, str]:
    refs = list(heads)
    if len(refs) != 1 or not refs[0].startswith("refs/heads/"):
        raise GitError("a bundle must hold exactly one branch")
    branch = refs[0].removeprefix("refs/heads/")
    if not BRANCH.fullmatch(branch):
        raise GitError(f"the bundle's branch {branch!r:.80} is not of the form evolve/<run>/<number>")
    return branch, heads[refs[0]]


def commit_ref(branch: str) -> str:
    """Return the ref of a branch."""
    return f"refs/heads/{branch}"


def _with_objects(objects: Path | None) -> dict[str, str]:
    """Return the environment in which git also reads this object folder."""
    return {} if objects is None else alternate_objects(str(objects))


def _answer_ref(branch: str) -> str:
    return ANSWERS + branch.removeprefix(BRANCHES)
