"""The user's repository: objects and branches are taken from it and given to it, all else of it stays as it is."""

import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rpc_server.config import SettingsError
from rpc_server.trees.bundle import read_bundle
from rpc_server.trees.git import Git, GitError

BRANCHES = "evolve/"
"""What the names of branches that mutations make begin with."""

ANSWERS = "refs/evolverpc/"
"""Where, under a branch's name without `evolve/`, the answer of the mutation that made it is kept, as a blob.

Not `refs/evolve/`: git takes `evolve/r/0` for `refs/evolve/r/0` before it thinks of the branch of that name.
"""

_BRANCH = re.compile(r"evolve/[A-Za-z0-9][A-Za-z0-9_-]{0,99}/[0-9]{1,9}")
_SUBMODULE = "160000"
_AT_ONCE = threading.Semaphore(4)
"""Checkouts at the same time: with more, the file system makes each of them slower."""


@dataclass(frozen=True)
class _Entry:
    """A path in a commit, and what is there."""

    path: str
    mode: str
    id: str

    @property
    def is_file(self) -> bool:
        return self.mode != _SUBMODULE


class NoRepository(SettingsError):
    """There is no repository that trees could be made from; the message says what to do."""


class Repository:
    """The git repository that `folder` is in. Every method blocks, and may be called from any thread.

    `top`: the top folder of its working tree. `prefix`: `folder` as seen from there, `""` where it is the same.

    Raises:
        NoRepository: `folder` is in none, or in one without a working tree or without a commit.
    """

    def __init__(self, folder: Path) -> None:
        folder = folder.resolve()
        self._own = Git(folder)  # with the index and HEAD of this working tree, which may be a linked one
        try:
            self.top = Path(self._own.line("rev-parse", "--show-toplevel"))
            self.git_dir = (folder / self._own.line("rev-parse", "--git-common-dir")).resolve()
        except GitError as error:
            advice = "" if "dubious ownership" in str(error) else "; trees need one: git init, git add, git commit"
            raise NoRepository(f"{folder}: {error}{advice}") from None
        inside = folder.relative_to(self.top.resolve()).as_posix()
        self.prefix = "" if inside == "." else inside
        self.git = Git(self.top, self.git_dir)
        self._taking = threading.Lock()

    @property
    def objects(self) -> Path:
        """The folder of its objects."""
        return self.git_dir / "objects"

    def head(self) -> tuple[str, str]:
        """The branch that is checked out, `detached` where none is, and its commit's full id.

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
        """Tracked paths whose content in the working tree or the index is not that of HEAD."""
        told = ("--porcelain=v1", "-z", "--untracked-files=no", "--no-renames", "--ignore-submodules=dirty")
        return [entry[3:] for entry in self._own.fields("status", *told)]

    def has(self, commit: str) -> bool:
        """Whether it has this commit, by its full id."""
        return self.git.line("cat-file", "--batch-check", stdin=f"{commit}\n".encode()).startswith(f"{commit} commit ")

    def files(self, commit: str, objects: Path | None = None) -> list[str]:
        """Every path in the commit. `objects`: a further folder that it may be found in, as everywhere here."""
        return [entry.path for entry in self._entries(commit, objects)]

    def submodules(self, commit: str) -> list[str]:
        """Paths in the commit that are other repositories' commits."""
        return [entry.path for entry in self._entries(commit, None) if entry.mode == _SUBMODULE]

    def read(self, commit: str, path: str, objects: Path | None = None) -> bytes | None:
        """The content of a file in the commit; None where there is no such file."""
        return self.read_all(commit, [path], objects).get(path)

    def read_all(self, commit: str, paths: Iterable[str], objects: Path | None = None) -> dict[str, bytes]:
        """The contents of those of the paths that are files in the commit; of a link, where it leads."""
        wanted = set(paths)
        entries = [entry for entry in self._entries(commit, objects) if entry.path in wanted and entry.is_file]
        asked = "".join(f"{entry.id}\n" for entry in entries).encode()
        told = self.git("cat-file", "--batch", stdin=asked, env=_also(objects))
        found = {}
        at = 0
        for entry in entries:
            start = told.index(b"\n", at) + 1
            size = int(told[at:start].split()[2])
            found[entry.path] = told[start : start + size]
            at = start + size + 1
        return found

    def check_out(self, commit: str, folder: Path, objects: Path | None = None) -> None:
        """Write the commit's files into `folder`, which is made; there is no `.git` in it.

        For as long as it takes there is a file beside it, of the same name with `.index`.

        Raises:
            GitError: there is no such commit, or its files cannot be written.
        """
        index = folder.with_name(f"{folder.name}.index")
        env = {"GIT_INDEX_FILE": str(index), "GIT_WORK_TREE": str(folder), **_also(objects)}
        folder.mkdir(parents=True)
        self.git("read-tree", commit, env=env, folder=folder)
        with _AT_ONCE:
            self.git("checkout-index", "--all", "--force", "--quiet", env=env, folder=folder)
        index.unlink()

    def branch(self, name: str) -> str | None:
        """The full id of the commit that a branch is at; None where there is no such branch."""
        return self._at(commit_ref(name))

    def answer(self, branch: str) -> bytes | None:
        """What was kept with a branch by `take`; None where nothing was."""
        blob = self._at(_answer_of(branch))
        return None if blob is None else self.git("cat-file", "blob", blob)

    def take(self, bundle: bytes, answer: bytes | None = None) -> str:
        """Take over the one branch `evolve/<run>/<number>` of a bundle, and keep `answer` with it; the full commit id.

        The branch and the answer appear together or not at all. Taking the same commit again changes nothing, but for
        an answer where none was kept.

        Raises:
            GitError: it is no such bundle, what it builds on is not here, or the branch is at another commit.
        """
        given = read_bundle(bundle)
        branch, commit = _only_branch(given.heads)
        missing = [needed for needed in given.needed if not self.has(needed)]
        if missing:
            raise GitError(f"the bundle builds on the commit {missing[0]}, which is not here")
        with self._taking:
            if not self.has(commit):
                # Loose: git would be slow with thousands of packs.
                self.git("unpack-objects", "-q", "--strict", stdin=given.pack)
                if not self.has(commit):
                    raise GitError(f"the bundle does not hold its commit {commit}")
            try:
                self._name(commit, branch, answer)
            except GitError:
                self._name(commit, branch, answer)  # another server may have done it just now
        return commit

    def drop(self, branch: str, commit: str) -> None:
        """Remove a branch at this commit and the answer kept with it; nothing where it is at another, or gone."""
        with self._taking:
            if self.branch(branch) != commit:
                return
            commands = [f"delete {commit_ref(branch)} {commit}"]
            kept = self._at(_answer_of(branch))
            if kept is not None:
                commands.append(f"delete {_answer_of(branch)} {kept}")
            self._update(commands)

    def push(self, commit: str, branch: str, remote: str) -> None:
        """Push a commit as a branch of the remote. Raises `GitError`."""
        self.git("push", "--quiet", "--no-verify", remote, f"{commit}:{commit_ref(branch)}")

    def unpush(self, commit: str, branch: str, remote: str) -> None:
        """Take a branch at this commit off the remote again. Raises `GitError` also where it is not there."""
        ref = commit_ref(branch)
        self.git("push", "--quiet", "--no-verify", f"--force-with-lease={ref}:{commit}", "--delete", remote, ref)

    def sweep(self) -> None:
        """Remove what a git that was killed left in the way of branches; only while nobody else makes any."""
        for refs in (self.git_dir / "refs" / "heads" / BRANCHES, self.git_dir / ANSWERS):
            for lock in refs.rglob("*.lock"):
                lock.unlink(missing_ok=True)

    def _at(self, ref: str) -> str | None:
        try:
            return self.git.line("rev-parse", "--verify", "--quiet", ref)
        except GitError:
            return None

    def _name(self, commit: str, branch: str, answer: bytes | None) -> None:
        known = self.branch(branch)
        if known not in (None, commit):
            raise GitError(f"the branch {branch} is at {known} here, not at {commit}")
        commands = [] if known else [f"create {commit_ref(branch)} {commit}"]
        if answer is not None and self._at(_answer_of(branch)) is None:
            blob = self.git.line("hash-object", "-w", "--stdin", stdin=answer)
            commands.append(f"create {_answer_of(branch)} {blob}")
        self._update(commands)

    def _update(self, commands: Iterable[str]) -> None:
        """All of these changes of refs, or none."""
        self.git("update-ref", "--stdin", stdin="".join(f"{line}\n" for line in commands).encode())

    def _entries(self, commit: str, objects: Path | None) -> list[_Entry]:
        listed = self.git.fields("ls-tree", "-r", "-z", commit, env=_also(objects))
        parts = [entry.partition("\t") for entry in listed]
        return [_Entry(path, mode, id_) for head, _, path in parts for mode, _, id_ in (head.split(" "),)]


def _only_branch(heads: dict[str, str]) -> tuple[str, str]:
    """The branch of a bundle, and its commit."""
    refs = list(heads)
    if len(refs) != 1 or not refs[0].startswith("refs/heads/"):
        raise GitError("a bundle must hold exactly one branch")
    branch = refs[0].removeprefix("refs/heads/")
    if not _BRANCH.fullmatch(branch):
        raise GitError(f"the bundle's branch {branch!r:.80} is not of the form evolve/<run>/<number>")
    return branch, heads[refs[0]]


def commit_ref(branch: str) -> str:
    """The ref of a branch."""
    return f"refs/heads/{branch}"


def _also(objects: Path | None) -> dict[str, str]:
    """The environment in which git looks into this folder too."""
    if objects is None:
        return {}
    quoted = str(objects).replace("\\", "\\\\").replace('"', '\\"')  # else it would end at a colon
    return {"GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{quoted}"'}


def _answer_of(branch: str) -> str:
    return ANSWERS + branch.removeprefix(BRANCHES)
