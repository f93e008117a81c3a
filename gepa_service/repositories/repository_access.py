"""Which repositories tenants may connect, and how git reads them: it reaches the judged addresses alone."""

import asyncio
import re
import tempfile
import urllib.parse
from dataclasses import dataclass
from pathlib import Path

from evolverpc_common.evolved_commits import COMMIT
from evolverpc_common.network_addresses import Network, url_host
from gepa_service.repositories.destinations import LONGEST_URL, Destination, DestinationRefused, destination_of
from sandbox_runtime.source.remote_git import FETCH, Credentials, GitFailed, git
from sandbox_runtime.source.repository_address import LocalRepository, address

HEAD = "HEAD"
_HEADS = "refs/heads/"
_REDIRECT = re.compile(r"redirect|returned error: 30[12378]\b")

FETCH_S = 600.0
LOOK_UP_S = 30.0
"""Seconds that a test of access may take."""

LARGEST_MB = 1024
"""MiB of a repository."""


@dataclass(frozen=True)
class RepositoryPolicy:
    """Which repositories tenants may connect.

    `allow_local`: folders of this machine and `file://` too, for a service of one person. `allow_networks`: networks
    besides the public ones.
    """

    allow_local: bool = False
    allow_networks: tuple[Network, ...] = ()


class RepositoryUnreachable(Exception):
    """A repository that cannot be read now, or not with these credentials; the text has the reason."""


@dataclass(frozen=True)
class Head:
    """The default branch of a repository, and its commit."""

    branch: str
    commit: str


@dataclass(frozen=True)
class AllowedRepository:
    """A repository that may be read. `url`: without the folder. `destination`: None for one of this machine."""

    url: str
    folder: str
    destination: Destination | None

    @property
    def text(self) -> str:
        """Return the address as it is stored: the URL with `#FOLDER`."""
        return f"{self.url}#{self.folder}" if self.folder else self.url


def allowed_repository(text: str, policy: RepositoryPolicy) -> AllowedRepository:
    """Parse and judge the address of a repository. Resolves its host, so it blocks.

    Raises:
        HostUnknown: its host has no address now. DestinationRefused: the policy does not allow it.
    """
    if not text or len(text) > LONGEST_URL or not text.isprintable():
        raise DestinationRefused(f"give the URL of a repository, at most {LONGEST_URL} printable characters")
    if text.startswith("~"):  # not expanded: that would show which users this machine has
        return _local(Path(text), "", policy)
    try:
        where = address(text)
    except (ValueError, OSError) as error:
        raise DestinationRefused(str(error)) from None
    if isinstance(where, LocalRepository):
        path, _, folder = text.partition("#")
        return _local(Path(path), folder, policy)
    scheme = urllib.parse.urlsplit(where.url).scheme
    if scheme == "file":
        return _local(Path(urllib.parse.unquote(urllib.parse.urlsplit(where.url).path)), where.folder, policy)
    if scheme not in {"https", "http"}:
        raise DestinationRefused("give the https:// URL of the repository: the service has no key for ssh")
    return AllowedRepository(where.url, where.folder, destination_of(where.url, policy.allow_networks))


def _local(path: Path, folder: str, policy: RepositoryPolicy) -> AllowedRepository:
    if not policy.allow_local:
        raise DestinationRefused("give the https:// URL of the repository: this service reads no folder of its machine")
    if not path.is_absolute() or ".." in folder.split("/"):
        raise DestinationRefused("give the absolute path of the repository's folder")
    return AllowedRepository(str(path), folder, None)


def git_settings(repository: AllowedRepository) -> dict[str, str]:
    """Return settings of git that keep it to the judged addresses: it follows no redirect and resolves no name."""
    settings = {"http.followRedirects": "false", "protocol.allow": "never", "protocol.file.allow": "never"}
    where = repository.destination
    if where is None:
        return settings | {"protocol.file.allow": "always"}
    addresses = ",".join(map(str, where.addresses))
    settings |= {f"protocol.{where.scheme}.allow": "always"}
    return settings | {"http.curloptResolve": f"{url_host(where.host)}:{where.port}:{addresses}"}


def git_configuration(repository: AllowedRepository, credentials: Credentials | None = None) -> str:
    """Return `git_settings` as a file for `GIT_CONFIG_GLOBAL`, for processes that run git by themselves.

    `credentials`: git then sends them to this repository alone.
    """
    settings = git_settings(repository)
    if credentials is not None:
        settings[f"http.{repository.url}.extraHeader"] = f"Authorization: Basic {credentials.basic}"
    lines = ""
    for full, value in settings.items():
        section, _, name = full.rpartition(".")
        head, _, sub = section.partition(".")
        lines += f'[{head} "{sub}"]\n' if sub else f"[{head}]\n"
        lines += f'\t{name} = "{value}"\n'
    return lines


async def remote_git(
    repository: AllowedRepository,
    *arguments: str,
    folder: Path,
    credentials: Credentials | None,
    timeout_s: float,
    bare: bool = False,
) -> bytes:
    """Run git against the repository, and return what it writes. The rest: as of `git`."""
    return await git(
        *arguments,
        folder=folder,
        bare=bare,
        network=True,
        settings=git_settings(repository),
        credentials=credentials,
        timeout_s=timeout_s,
    )


async def fetch(
    repository: AllowedRepository, commit: str, folder: Path, credentials: Credentials | None, *, bare: bool = False
) -> None:
    """Bring a commit to the git repository in `folder`, without those before it. Raises `GitFailed`."""
    asked = (*FETCH, repository.url, commit)
    await remote_git(repository, *asked, folder=folder, credentials=credentials, timeout_s=FETCH_S, bare=bare)


async def look_up(repository: AllowedRepository, credentials: Credentials | None) -> Head:
    """Ask the repository for its default branch: the test of access.

    Raises:
        RepositoryUnreachable: it is not there, is empty, or refuses the credentials.
    """
    asked = ("ls-remote", "--quiet", "--symref", "--end-of-options", repository.url, HEAD)
    try:
        with tempfile.TemporaryDirectory(prefix="gepa-service-") as folder:
            listed = await remote_git(
                repository, *asked, folder=Path(folder), credentials=credentials, timeout_s=LOOK_UP_S
            )
    except GitFailed as error:
        advice = _advice(str(error), credentials is not None)
        raise RepositoryUnreachable(f"{repository.url} cannot be read: {advice}") from None
    return await asyncio.to_thread(_head, listed.decode("utf-8", "replace"), repository.url)


def _head(listed: str, url: str) -> Head:
    branch, commit = "", ""
    for row in listed.splitlines():
        value, _, name = row.partition("\t")
        if name == HEAD and value.startswith("ref: " + _HEADS):
            branch = value.removeprefix("ref: " + _HEADS)
        elif name == HEAD and COMMIT.fullmatch(value):
            commit = value
    if not commit:
        raise RepositoryUnreachable(f"{url} has no commit on its default branch: push one")
    return Head(branch or "main", commit)


def _advice(message: str, has_credentials: bool) -> str:
    lowered = message.lower()
    if _REDIRECT.search(lowered):
        return "it answers with a redirect; give the address that the repository has now"
    if not has_credentials and any(
        word in lowered for word in ("authentication", "could not read username", "not found")
    ):
        return "it does not exist, or is private: install the GitHub App for it and give installation_id"
    return message[:500]
