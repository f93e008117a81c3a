"""The commit that a source names: find or fetch it by its address, read its files, and pack it for a sandbox."""

import asyncio
import hashlib
import re
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from evolverpc_common.display_text import counted
from evolverpc_common.evolved_commits import COMMIT
from evolverpc_common.git import LOCAL_TIMEOUT_S, filters_off, read_batch
from evolverpc_common.shielded import run_shielded
from sandbox_runtime.api.sandbox import SandboxError
from sandbox_runtime.source.remote_git import FETCH, GitFailed, GitToken, git, line
from sandbox_runtime.source.repository_address import LocalRepository, RemoteRepository

PACK_S = 600.0

MANIFESTS_BYTES = 16 * 2**20
"""Largest total size of the files that are read into memory."""

_FILE_MODES = (b"100644", b"100755")
_SHA256_DIGITS = 64
_LFS_POINTER, _LFS_BYTES = b"version https://git-lfs.github.com/spec/", 1024
"""How a pointer of Git LFS begins, and more bytes than it has."""


@dataclass
class Commit:
    """A commit by its full `id`, in the repository that `folder` is in, or that it is if `bare`."""

    folder: Path
    id: str
    bare: bool = False
    _ids: dict[str, str] | None = field(default=None, init=False, repr=False)

    async def read(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Return the files among these paths, from the repository's top.

        Raises:
            GitFailed: git cannot read them.
            SandboxError: they are too large.
        """
        ids = await self.ids()
        found = {path: ids[path] for path in sorted(set(paths)) if path in ids}
        asked = "".join(f"{blob}\n" for blob in found.values()).encode()
        sizes = await self._sizes(asked)
        if sum(sizes) > MANIFESTS_BYTES:
            largest = list(found)[sizes.index(max(sizes))]
            raise SandboxError(
                f"commit {self.id[:12]}: {', '.join(found)} are more than {MANIFESTS_BYTES / 2**20:g} MB, which is too"
                f" much for manifests; the largest is {largest}"
            )
        contents = read_batch(await self._git("cat-file", "--batch", stdin=asked))
        return dict(zip(found, contents, strict=True))

    async def ids(self) -> dict[str, str]:
        """Return the ids of the contents of all files, by path from the repository's top. Raises `GitFailed`."""
        if self._ids is None:
            self._ids = ids_of(await self._git("ls-tree", "-r", "-z", "--full-tree", self.id), place=2)
        return self._ids

    async def lfs_pointers(self) -> list[str]:
        """Return the paths of the files that are pointers of Git LFS. Raises `GitFailed`."""
        ids = await self.ids()
        sizes = await self._sizes("".join(f"{blob}\n" for blob in ids.values()).encode())
        small = [path for path, size in zip(ids, sizes, strict=True) if size < _LFS_BYTES]
        asked = "".join(f"{ids[path]}\n" for path in small).encode()
        contents = read_batch(await self._git("cat-file", "--batch", stdin=asked))
        return [path for path, content in zip(small, contents, strict=True) if content.startswith(_LFS_POINTER)]

    async def pack(self, branch: str, tar: Path, most_mb: int) -> None:
        """Write a tar of a `.git` with this commit only, without its parents, checked out as `branch`.

        It has no remote, no hook and no settings of the user.

        Raises:
            GitFailed: git cannot read all of it.
            SandboxError: its files are larger than `most_mb`.
        """
        objects = await self._git("rev-list", "--objects", "--no-object-names", "--no-walk", self.id)
        size_mb = sum(await self._sizes(objects)) / 2**20
        if size_mb > most_mb:
            raise SandboxError(
                f"commit {self.id[:12]} is of {size_mb:.0f} MB, and a sandbox's workspace of {most_mb} MB"
            )
        with tempfile.TemporaryDirectory(dir=tar.parent, prefix="packing-") as folder:
            repository, draft = Path(folder) / ".git", Path(folder) / "tar"
            self._make(repository, branch)
            # The source is read as an alternate: git would write the pack to it first, which may be another disk.
            where = ("rev-parse", "--path-format=absolute", "--git-path", "objects")
            objects_there = await line(*where, folder=self.folder, bare=self.bare)
            alternate, listed = repository / "source", repository / "objects" / "info" / "alternates"
            alternate.symlink_to(objects_there)
            listed.write_text("../source\n", encoding="utf-8")
            # Neither deltas nor compression: it is written once and unpacked in every sandbox.
            plain = ("--window=0", "--compression=0", "--no-reuse-delta", "--no-reuse-object")
            pack = ("pack-objects", "--quiet", "--threads=1", *plain, str(repository / "objects" / "pack" / "pack"))
            await git(*pack, folder=repository.parent, stdin=objects, timeout_s=PACK_S)
            alternate.unlink()
            listed.unlink()
            await run_shielded(_archive, repository, draft)
            draft.chmod(0o600)
            draft.replace(tar)

    async def _sizes(self, objects: bytes) -> list[int]:
        """Return the sizes of the objects with these ids, one on each line."""
        output = await self._git("cat-file", "--batch-check=%(objectsize)", stdin=objects)
        lines = output.decode().splitlines()
        if missing := next((line for line in lines if not line.isdigit()), None):
            raise GitFailed(f"commit {self.id[:12]}: an object is not there: {missing}")
        return [*map(int, lines)]

    async def _git(self, *arguments: str, stdin: bytes = b"", timeout_s: float = LOCAL_TIMEOUT_S) -> bytes:
        return await git(*arguments, folder=self.folder, bare=self.bare, stdin=stdin, timeout_s=timeout_s)

    def _make(self, repository: Path, branch: str) -> None:
        """Make a repository without objects, in which the branch is at this commit."""
        sha256 = len(self.id) == _SHA256_DIGITS
        config = f"[core]\n\trepositoryformatversion = {int(sha256)}\n\tfilemode = true\n\tbare = false\n"
        if sha256:
            config += "[extensions]\n\tobjectformat = sha256\n"
        for folder in ("objects/info", "objects/pack", "info", "refs/heads"):
            (repository / folder).mkdir(parents=True)
        (repository / "HEAD").write_text(f"ref: refs/heads/{branch}\n", encoding="utf-8")
        (repository / "config").write_text(config, encoding="utf-8")
        (repository / "shallow").write_text(f"{self.id}\n", encoding="utf-8")
        refs = f"# pack-refs with: peeled fully-peeled sorted\n{self.id} refs/heads/{branch}\n"
        (repository / "packed-refs").write_text(refs, encoding="utf-8")


def ids_of(listed: bytes, place: int) -> dict[str, str]:
    """Return the ids by path of the files that git has listed, but links: the word at this `place` before each path."""
    entries = (entry.decode("utf-8", "surrogateescape").partition("\t") for entry in listed.split(b"\0") if entry)
    found = ((path, words.split(" ")) for words, _, path in entries)
    return {path: words[place] for path, words in found if words[0].encode() in _FILE_MODES and len(words) > place}


def _archive(repository: Path, tar: Path) -> None:
    """Write the repository to a tar, for any owner. Blocks."""

    def anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        entry.mode = 0o755 if entry.isdir() else 0o644
        return entry

    with tarfile.open(tar, "w", format=tarfile.PAX_FORMAT) as archive:
        archive.add(repository, ".git", filter=anonymous)


FETCH_S = 1800.0
"""Seconds that a fetch may take."""

BRANCH = "main"
"""The branch name if the source names none."""

_REF = re.compile(r"(?!-)[^\s~^:?*\[\\\x00-\x1f\x7f]+")
_HEADS, _TAGS = "refs/heads/", "refs/tags/"


@dataclass(frozen=True)
class SourceCommit:
    """A commit, its branch, the program's folder from the top, and descriptions of what was left out."""

    commit: Commit
    branch: str
    folder: str
    left_out: tuple[str, ...] = ()


async def local_commit(where: LocalRepository, ref: str) -> SourceCommit:
    """Return the commit in a repository of this machine.

    Raises:
        SandboxError: the folder is in no repository, or there is no such commit.
    """
    path = where.path
    if not await asyncio.to_thread(path.is_dir):
        hint = "; `#` is for URLs: give the folder in the repository itself" if "#" in str(path) else ""
        raise SandboxError(f"there is no folder {path}{hint}")
    try:
        top = Path(await line("rev-parse", "--show-toplevel", folder=path))
        folder = (await line("rev-parse", "--show-prefix", folder=path)).rstrip("/")
    except GitFailed as error:
        advice = (
            "" if "dubious ownership" in str(error) else "; a sandbox is given a commit: git init, git add, git commit"
        )
        raise SandboxError(f"{path}: {error}{advice}") from None
    _check(ref)
    try:
        commit = await line("rev-parse", "--verify", "--end-of-options", f"{ref}^{{commit}}", folder=top)
    except GitFailed:
        raise SandboxError(f"{top} has no commit {ref!r}") from None
    full = await _git_output("rev-parse", "--symbolic-full-name", ref, folder=top)
    branch = full.removeprefix(_HEADS) if full.startswith(_HEADS) else BRANCH
    return SourceCommit(Commit(top, commit), branch, folder, await _uncommitted(top, folder))


def mirror_path(where: RemoteRepository, cache: Path) -> Path:
    """Return the repository below `cache` for what is fetched from there."""
    return cache / "mirrors" / f"{hashlib.sha256(where.url.encode()).hexdigest()[:24]}.git"


async def remote_commit(
    where: RemoteRepository,
    ref: str,
    mirror: Path,
    credentials: GitToken | None,
    on_progress: Callable[[str], None],
) -> SourceCommit:
    """Fetch the commit of another repository into `mirror`, see `mirror_path`, unless it is there.

    Raises:
        SandboxError: it cannot be fetched, or there is no such commit.
    """
    _check(ref)
    if not (mirror / "HEAD").is_file():
        await git("init", "--quiet", "--bare", "--template=", str(mirror), folder=mirror.parent)
    commit, branch = ref, BRANCH
    if not COMMIT.fullmatch(ref):
        commit, branch = await _resolved(where, ref, mirror, credentials)
    # A commit that is there is complete: a fetch writes its objects all at once.
    if await _git_output("cat-file", "-t", commit, folder=mirror, bare=True) != "commit":
        on_progress(f"fetching {commit[:12]} of {where}")
        await asyncio.to_thread(_unlock, mirror)
        await _asking(where, credentials, *FETCH, where.url, commit, mirror=mirror, timeout_s=FETCH_S)
    return SourceCommit(Commit(mirror, commit, bare=True), branch, where.folder)


async def _resolved(where: RemoteRepository, ref: str, mirror: Path, credentials: GitToken | None) -> tuple[str, str]:
    """Return the commit of a ref there, and the branch; tags come before branches, as in git."""
    names = [ref, f"{_TAGS}{ref}^{{}}", f"{_TAGS}{ref}", f"{_HEADS}{ref}"]
    listed = await _asking(
        where, credentials, "ls-remote", "--quiet", "--symref", "--end-of-options", where.url, *names, mirror=mirror
    )
    found: dict[str, str] = {}
    head = ""
    for line_of_output in listed.decode("utf-8", "replace").splitlines():
        value, _, name = line_of_output.partition("\t")
        if value.startswith("ref: ") and name == ref:
            head = value.removeprefix("ref: ")
        elif COMMIT.fullmatch(value):
            found[name] = value
    for name in names:
        if name in found:
            full = head or name
            branch = full.removeprefix(_HEADS)
            return found[name], branch if full.startswith(_HEADS) and _REF.fullmatch(branch) else BRANCH
    raise SandboxError(f"{where.url} has no branch and no tag {ref!r}; a commit is named there by all of its id")


async def _asking(
    where: RemoteRepository, given: GitToken | None, *arguments: str, mirror: Path, timeout_s: float = 120.0
) -> bytes:
    """Run one git command that talks to the repository, with the credentials."""
    credentials = given.for_url(where.url) if given is not None else None
    try:
        return await git(
            *arguments, folder=mirror, bare=True, network=True, credentials=credentials, timeout_s=timeout_s
        )
    except GitFailed as error:
        hint = "" if credentials is not None else "; if it is private, give a token or a GitHub App for its host"
        raise GitFailed(f"{where.url}: {error}{hint}") from None


def _unlock(mirror: Path) -> None:
    """Remove lock files of a git that was killed; the caller holds the mirror's lock. Blocks."""
    for left in mirror.glob("*.lock"):
        left.unlink()


async def _uncommitted(top: Path, folder: str) -> tuple[str, ...]:
    """Describe the changes of the program's folder that are in no commit."""
    status = ("status", "--porcelain=v1", "-z", "--no-renames", "--ignore-submodules=all", "--", folder or ".")
    names = (await git("config", "--list", "--null", "--name-only", folder=top)).decode("utf-8", "surrogateescape")
    changed = await git(*status, folder=top, settings=filters_off(names.split("\0")))  # filters are commands
    entries = [entry.decode("utf-8", "replace") for entry in changed.split(b"\0") if entry]
    if not entries:
        return ()
    names = ", ".join(entry[3:] for entry in entries[:5]) + (", ..." if len(entries) > 5 else "")
    return (f"{counted(len(entries), 'uncommitted change')} left out, as a sandbox gets a commit: {names}",)


async def _git_output(*arguments: str, folder: Path, bare: bool = False) -> str:
    """Return what git prints, nothing if it fails."""
    try:
        return await line(*arguments, folder=folder, bare=bare)
    except GitFailed:
        return ""


def _check(ref: str) -> None:
    if not _REF.fullmatch(ref.replace("~", "").replace("^", "")):
        raise SandboxError(f"{ref!r} is not the name of a commit")
