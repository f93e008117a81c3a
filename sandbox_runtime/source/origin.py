"""Find the commit that a source names: parse the address, look in a local repository, or fetch from a remote one."""

import asyncio
import hashlib
import posixpath
import re
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from evolverpc_common.git import filters_off
from evolverpc_common.network_addresses import is_loopback
from sandbox_runtime.api.sandbox import SandboxError
from sandbox_runtime.source.commits import Commit
from sandbox_runtime.source.remote_git import FETCH, GitFailed, GitToken, git, line

_SCP = re.compile(r"(?P<user>[\w.-]+)@(?P<host>[\w.-]+):(?P<path>[^/:][^:]*)")
_SCHEMES = ("https", "ssh", "file")


@dataclass(frozen=True)
class LocalRepository:
    """A folder in the working tree of a repository."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True)
class RemoteRepository:
    """A repository by `url`, without user and password except for ssh. `folder`: the program's, `""` for the top."""

    url: str
    folder: str

    def __str__(self) -> str:
        return f"{self.url}#{self.folder}" if self.folder else self.url


def address(text: str) -> LocalRepository | RemoteRepository:
    """Parse a path, `https://host/owner/name`, `ssh://`, `file://` or `git@host:path`, each with `#folder`.

    Raises:
        ValueError: it is none of these, or holds a password.
    """
    url, _, folder = text.partition("#")
    scp = _SCP.fullmatch(url)
    if scp is not None and not Path(text).exists():
        return RemoteRepository(f"ssh://{scp['user']}@{scp['host']}/{scp['path']}", _folder(folder))
    if "://" not in url:
        try:
            return LocalRepository(Path(text).expanduser())
        except RuntimeError:
            raise ValueError(
                f"{text}: no home folder is known for {Path(text).parts[0]}; give the whole path"
            ) from None
    parts = urllib.parse.urlsplit(url)
    if parts.password is not None or (parts.username is not None and parts.scheme != "ssh"):
        raise ValueError(
            f"leave user and password out of the URL of {parts.hostname}: other programs and logs would see them;"
            " give a token in a file (`git_token_file`)"
        )
    if parts.scheme == "http" and is_loopback(parts.hostname):
        return RemoteRepository(url, _folder(folder))
    if parts.scheme not in _SCHEMES:
        raise ValueError(f"{url}: a repository is a folder, or a URL that begins with https://, ssh:// or file://")
    if parts.scheme != "file" and not parts.hostname:
        raise ValueError(f"{url} names no host")
    return RemoteRepository(url, _folder(folder))


def _folder(text: str) -> str:
    folder = posixpath.normpath(text) if text else ""
    if folder.startswith(("/", "..")):
        raise ValueError(f"#{text} is not a folder of the repository")
    return "" if folder == "." else folder


FETCH_S = 1800.0
"""Seconds that a fetch may take."""

BRANCH = "main"
"""The branch name if the source names none."""

_FULL = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
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
        raise SandboxError(f"there is no folder {path}")
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
    if not _FULL.fullmatch(ref):
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
        elif _FULL.fullmatch(value):
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
    changed = await git(*status, folder=top, settings=await _no_filters(top))
    entries = [entry.decode("utf-8", "replace") for entry in changed.split(b"\0") if entry]
    if not entries:
        return ()
    names = ", ".join(entry[3:] for entry in entries[:5]) + (", ..." if len(entries) > 5 else "")
    return (f"{len(entries)} uncommitted changes are left out, a sandbox is given a commit: {names}",)


async def _no_filters(top: Path) -> dict[str, str]:
    """Return settings that turn off the configured filters, which are commands."""
    listed = (await git("config", "--list", "--null", "--name-only", folder=top)).decode("utf-8", "surrogateescape")
    return filters_off(listed.split("\0"))


async def _git_output(*arguments: str, folder: Path, bare: bool = False) -> str:
    """Return what git prints, nothing if it fails."""
    try:
        return await line(*arguments, folder=folder, bare=bare)
    except GitFailed:
        return ""


def _check(ref: str) -> None:
    if not _REF.fullmatch(ref.replace("~", "").replace("^", "")):
        raise SandboxError(f"{ref!r} is not the name of a commit")
