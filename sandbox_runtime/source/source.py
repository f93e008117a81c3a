"""The program of a sandbox: one commit of a repository, packed so that every sandbox can unpack it."""

import asyncio
import hashlib
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from evolverpc_common.files import lock_if_free, locked, remove_tree
from evolverpc_common.shielded import run_shielded
from sandbox_runtime.api.sandbox import SandboxError
from sandbox_runtime.api.spec import Command, Recipe, ResourceLimits
from sandbox_runtime.source.commits import local_commit, mirror_path, remote_commit
from sandbox_runtime.source.recipes import program_needs
from sandbox_runtime.source.remote_git import GitToken
from sandbox_runtime.source.repository_address import RemoteRepository, address

PROGRAM = "program"
"""The folder of a workspace that the repository is unpacked to."""

KEPT_DAYS = 30
"""Days that an unused commit or repository is kept."""

logger = logging.getLogger(__name__)

_UNPACK_S = 600.0
_UNPACK = (
    'mkdir "$1" && tar -x --no-same-owner -C "$1"'
    ' && git -C "$1" -c core.hooksPath=/dev/null -c advice.detachedHead=false checkout --quiet --force "$2"'
)


@dataclass(frozen=True)
class Checkout:
    """A commit that is ready to be unpacked.

    `commit`: its full id. `branch`: checked out at that commit. `folder`: the program's, from the top, `""` for that
    itself. `tar`: a `.git` with this commit only.
    """

    commit: str
    branch: str
    folder: str
    tar: Path
    needs: Recipe

    @property
    def cwd(self) -> str:
        """The program's folder, from the workspace."""
        return f"{PROGRAM}/{self.folder}" if self.folder else PROGRAM

    def unpack_command(self) -> Command:
        """Return the command that makes `program/` in the workspace. It needs `sh`, `tar` and `git`, and no network."""
        argv = ("sh", "-ec", _UNPACK, "sh", PROGRAM, self.branch)
        return Command(argv, stdin=self.tar, timeout_s=_UNPACK_S)


class Source:
    """A program by the address of its repository, a path or a URL (see `address`), and a `ref`: branch, tag or commit.

    `credentials`: for a remote repository. `cache`: the private folder of commits and fetched repositories, by default
    `$XDG_CACHE_HOME/evolverpc/sources`, for every process of this user. `most_mb`: the largest size of the commit's
    files.

    Raises:
        ValueError: the address is invalid.
    """

    def __init__(
        self,
        repository: str,
        ref: str = "HEAD",
        *,
        credentials: GitToken | None = None,
        cache: Path | None = None,
        most_mb: int = ResourceLimits.workspace_mb,
    ) -> None:
        self._address = address(repository)
        self._ref = ref
        self._credentials = credentials
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        self._cache = (cache or caches / "evolverpc" / "sources").absolute()
        self._most_mb = most_mb
        self._checkout: Checkout | None = None
        self._working = asyncio.Lock()

    def __str__(self) -> str:
        return f"{self._address} at {self._ref}"

    async def ready(self, *, on_progress: Callable[[str], None]) -> Checkout:
        """Return its commit, fetched and packed if needed. The ref is resolved once.

        Raises:
            SandboxError: it is not available; the message has the reason, without secrets.
        """
        async with self._working:
            if self._checkout is None:
                self._checkout = await self._made(on_progress)
            return self._checkout

    async def _made(self, on_progress: Callable[[str], None]) -> Checkout:
        await asyncio.to_thread(self._make_private)
        where, locks = self._address, self._cache / "locks"
        mirror = mirror_path(where, self._cache) if isinstance(where, RemoteRepository) else None
        lock = locks / (mirror.name if mirror is not None else _short(str(where)))  # several folders share a mirror
        async with locked(lock, lambda: on_progress(f"waiting for another process that works with {where}")):
            if isinstance(where, RemoteRepository):
                assert mirror is not None  # noqa: S101  it has one
                origin = await remote_commit(where, self._ref, mirror, self._credentials, on_progress)
            else:
                origin = await local_commit(where, self._ref)
            if origin.folder and not any(path.startswith(f"{origin.folder}/") for path in await origin.commit.ids()):
                raise SandboxError(f"{self._address}: commit {origin.commit.id[:12]} has no folder {origin.folder}")
            needs = await program_needs(origin.commit, origin.folder)
            pointers = await origin.commit.lfs_pointers()
            tar = self._cache / "commits" / f"{origin.commit.id}-{_short(origin.branch)}-plain.tar"
            if not await asyncio.to_thread(tar.exists):
                await origin.commit.pack(origin.branch, tar, self._most_mb)
                await run_shielded(self._sweep)
            for used in (tar, *([] if mirror is None else [mirror])):
                os.utime(used)
        installs = [each for each in (needs.install, needs.node_install) if each is not None]
        unused = [f"{path}: not used, {each.decided_by} decides" for each in installs for path in each.unused]
        of_lfs = [
            f"the content of {path} is left out: Git LFS holds it, and the program reads a pointer" for path in pointers
        ]
        for left_out in (*origin.left_out, *of_lfs, *unused):
            on_progress(left_out)
        made = Checkout(origin.commit.id, origin.branch, origin.folder, tar, needs)
        origin_of_builds = str(self._address) if installs else ""
        return replace(made, needs=replace(needs, checkout=(made.unpack_command(),), origin=origin_of_builds))

    def _make_private(self) -> None:
        """Make the cache's folders private, because they hold private repositories. Blocks."""
        for folder in (self._cache, *(self._cache / name for name in ("commits", "mirrors", "locks"))):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)

    def _sweep(self) -> None:
        """Remove what is unused for `KEPT_DAYS`, unless a process works with it. Blocks."""
        before = time.time() - KEPT_DAYS * 24 * 3600
        try:
            for path in self._cache.glob("commits/*"):
                if _is_older(path, before):
                    remove_tree(path) if path.is_dir() else path.unlink(missing_ok=True)
            for mirror in self._cache.glob("mirrors/*.git"):
                if _is_older(mirror, before):
                    with lock_if_free(self._cache / "locks" / mirror.name) as held:
                        if held and _is_older(mirror, before):
                            remove_tree(mirror)
        except OSError as error:
            logger.warning("not all that is unused could be removed: %s", error)


def _is_older(path: Path, than: float) -> bool:
    with suppress(FileNotFoundError):  # another process sweeps too
        return path.stat().st_mtime < than
    return False


def _short(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]
