"""Read a commit: its files, and a small repository of this commit only, to be unpacked in a sandbox."""

import tarfile
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from evolverpc_common.git import LOCAL_TIMEOUT_S, read_batch
from evolverpc_common.shielded import run_shielded
from sandbox_runtime.api.sandbox import SandboxError
from sandbox_runtime.source.remote_git import GitFailed, git

PACK_S = 600.0

MANIFESTS_BYTES = 16 * 2**20
"""Largest total size of the files that are read into memory."""

_FILE_MODES = (b"100644", b"100755")
_SHA256_DIGITS = 64
_LFS_POINTER, _LFS_BYTES = b"version https://git-lfs.github.com/spec/", 1024
"""How a pointer of Git LFS begins, and more bytes than it has."""


@dataclass(frozen=True)
class Commit:
    """A commit by its full `id`, in the repository that `folder` is in, or that it is if `bare`."""

    folder: Path
    id: str
    bare: bool = False

    async def read(self, paths: Iterable[str]) -> dict[str, bytes]:
        """Return the files among these paths, from the repository's top.

        Raises:
            GitFailed: git cannot read them.
            SandboxError: they are too large.
        """
        wanted = sorted(set(paths))
        if not wanted:
            return {}
        listed = await self._git("ls-tree", "-z", "--full-tree", self.id, "--", *wanted)
        found: dict[str, str] = {}
        for entry in filter(None, listed.split(b"\0")):
            details, _, name = entry.partition(b"\t")
            mode, _, blob = details.split(b" ")
            if mode in _FILE_MODES:
                found[name.decode("utf-8", "surrogateescape")] = blob.decode()
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
        return ids_of(await self._git("ls-tree", "-r", "-z", "--full-tree", self.id), place=2)

    async def lfs_pointers(self) -> list[str]:
        """Return the paths of the files that are pointers of Git LFS. Raises `GitFailed`."""
        ids = await self.ids()
        sizes = await self._sizes("".join(f"{blob}\n" for blob in ids.values()).encode())
        small = [path for path, size in zip(ids, sizes, strict=True) if size < _LFS_BYTES]
        asked = "".join(f"{ids[path]}\n" for path in small).encode()
        contents = read_batch(await self._git("cat-file", "--batch", stdin=asked))
        return [path for path, content in zip(small, contents, strict=True) if content.startswith(_LFS_POINTER)]

    async def has_folder(self, path: str) -> bool:
        """Return whether there is a folder at this path from the repository's top."""
        return bool(await self._git("ls-tree", "-d", "-z", "--full-tree", self.id, "--", path))

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
            # Neither deltas nor compression: it is written once and unpacked in every sandbox.
            plain = ("--window=0", "--compression=0", "--no-reuse-delta", "--no-reuse-object")
            pack = ("pack-objects", "--quiet", "--threads=1", *plain, str(repository / "objects" / "pack" / "pack"))
            await self._git(*pack, stdin=objects, timeout_s=PACK_S)
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
        for folder in ("objects/pack", "info", "refs/heads"):
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
