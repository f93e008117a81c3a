"""The program that a sandbox serves: one commit of a repository, packed so that it can be unpacked in any sandbox."""

import asyncio
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sandbox_runtime.client.address import Local, Remote, address
from sandbox_runtime.client.credentials import GitCredentials
from sandbox_runtime.client.origin import Origin, local_origin, remote_origin
from sandbox_runtime.client.recipes import LANGUAGES, Language, Needs, needs_of
from sandbox_runtime.locked import locked
from sandbox_runtime.sandbox import SandboxError
from sandbox_runtime.spec import Command
from sandbox_runtime.uninterrupted import to_the_end

PROGRAM = "program"
"""The folder of a workspace that the repository is unpacked to."""

KEPT_DAYS = 30
"""How long a commit and a repository are kept that no sandbox is started with."""

_UNPACK_S = 600.0
_UNPACK = (
    'mkdir "$1" && tar -x --no-same-owner -C "$1"'
    ' && git -C "$1" -c core.hooksPath=/dev/null -c advice.detachedHead=false checkout --quiet --force "$2"'
)


@dataclass(frozen=True)
class Checkout:
    """A commit that is ready to be unpacked.

    `commit`: its full id. `branch`: what is checked out, at that commit. `folder`: the program's, from the top, `""`
    for that itself. `tar`: a `.git` that has this commit alone. `left_out`: what a sandbox does not get, in words.
    """

    commit: str
    branch: str
    folder: str
    tar: Path
    needs: Needs
    left_out: tuple[str, ...] = ()

    @property
    def cwd(self) -> str:
        """The program's folder, from the workspace."""
        return f"{PROGRAM}/{self.folder}" if self.folder else PROGRAM

    def setup(self) -> tuple[Command, ...]:
        """Makes `program/` in the workspace. It needs `sh`, `tar` and `git` there, and no network."""
        argv = ("sh", "-ec", _UNPACK, "sh", PROGRAM, self.branch)
        return (Command(argv, stdin=self.tar, timeout_s=_UNPACK_S),)


class Source:
    """A program by where its repository is, a path or a URL (see `address`), and a `ref`: branch, tag or commit.

    `credentials`: for a repository elsewhere. `cache`: where commits and what was fetched are kept, by default
    `$XDG_CACHE_HOME/evolverpc/sources`, for every process of this user.

    Raises:
        ValueError: the address is none.
    """

    def __init__(
        self,
        repository: str,
        ref: str = "HEAD",
        *,
        credentials: GitCredentials | None = None,
        languages: Collection[Language] = LANGUAGES,
        cache: Path | None = None,
    ) -> None:
        self._address = address(repository)
        self._ref = ref
        self._credentials = credentials
        self.languages = tuple(languages)
        self._cache = (cache or _default_cache()).absolute()
        self._checkout: Checkout | None = None
        self._working = asyncio.Lock()

    def __str__(self) -> str:
        return f"{self._address} at {self._ref}"

    async def ready(self, *, told: Callable[[str], None]) -> Checkout:
        """Its commit, fetched and packed where it is not yet. The ref is looked up once and keeps that meaning.

        Raises:
            SandboxError: it cannot be had; the text says why, and nothing secret.
        """
        async with self._working:
            if self._checkout is None:
                self._checkout = await self._made(told)
            return self._checkout

    async def _made(self, told: Callable[[str], None]) -> Checkout:
        async with locked(self._cache / "locks" / _short(str(self._address))):
            origin = await self._origin(told)
            if origin.folder and not await origin.commit.has_folder(origin.folder):
                raise SandboxError(f"{self._address}: commit {origin.commit.id[:12]} has no folder {origin.folder}")
            needs = await needs_of(origin.commit.read, origin.folder, self.languages)
            tar = self._tar(origin)
            if not await asyncio.to_thread(tar.exists):
                await asyncio.to_thread(partial(tar.parent.mkdir, parents=True, exist_ok=True))
                await origin.commit.pack(origin.branch, tar)
                await to_the_end(self._sweep)
            for used in (tar, origin.commit.folder) if isinstance(self._address, Remote) else (tar,):
                os.utime(used)
        for words in origin.left_out:
            told(words)
        return Checkout(origin.commit.id, origin.branch, origin.folder, tar, needs, origin.left_out)

    async def _origin(self, told: Callable[[str], None]) -> Origin:
        if isinstance(self._address, Local):
            return await local_origin(self._address, self._ref)
        return await remote_origin(self._address, self._ref, self._cache / "mirrors", self._credentials, told)

    def _tar(self, origin: Origin) -> Path:
        return self._cache / "commits" / f"{origin.commit.id}-{_short(origin.branch)}-plain.tar"

    def _sweep(self) -> None:
        """Remove what no sandbox was started with for `KEPT_DAYS`; Blocks."""
        before = time.time() - KEPT_DAYS * 24 * 3600
        for path in (*self._cache.glob("commits/*"), *self._cache.glob("mirrors/*.git")):
            with suppress(FileNotFoundError):  # another process sweeps too
                if path.stat().st_mtime < before:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()


def _default_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "evolverpc" / "sources"


def _short(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]
