"""Which repositories tenants may connect, and how git reads them and pushes: it reaches the judged addresses alone."""

import asyncio
import json
import posixpath
import re
import tempfile
import tomllib
import urllib.parse
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evolverpc_common.evolved_commits import COMMIT, SERVICE_AUTHOR
from evolverpc_common.network_addresses import Network, url_host
from gepa_service.repositories.destinations import LONGEST_URL, Destination, DestinationRefused, destination_of
from sandbox_runtime.source.commits import LocalRepository, address
from sandbox_runtime.source.remote_git import FETCH, Credentials, GitFailed, git

HEAD = "HEAD"
_HEADS = "refs/heads/"
_REDIRECT = re.compile(r"redirect|returned error: 30[12378]\b")

FETCH_S = 600.0
LOOK_UP_S = 30.0
"""Seconds that a test of access may take."""

LARGEST_MB = 1024
"""MiB of a repository."""


TEXTS = ".gepa/best_candidate.json"
"""The file that holds the texts of a version."""

PUSH_S = 300.0


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


@dataclass(frozen=True)
class DeliveredChange:
    """What a branch adds to `base`. `patch`: as of `Program`; `texts`: by component, without those that name code.

    `saved`: what the program saved; `saved_path`: the file for it, from the program's folder, None for the one that
    its `gepa.toml` names.
    """

    base: str
    patch: str | None
    texts: Mapping[str, str]
    message: str
    saved: Mapping[str, Any] | None = None
    saved_path: str | None = None

    def files(self, folder: str, config: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
        """Return the JSON files that it writes, by path: also those from which the program reads its texts.

        `folder`: the program's; `config`: its `gepa.toml`.
        """
        found: dict[str, Mapping[str, Any]] = {TEXTS: self.texts} if self.texts else {}
        saved_path = self.saved_path or config.get("saved_program_json_path")
        for path, content in ((saved_path, self.saved), (config.get("seed_candidate"), self.texts)):
            if content and isinstance(path, str):
                place = posixpath.normpath(posixpath.join(folder, str(config.get("root", "")), path))
                if not place.startswith(("/", "../", ".git/")):
                    found[place] = content
        return found


async def push(repository: AllowedRepository, branch: str, change: DeliveredChange, credentials: Credentials) -> str:
    """Push the change as one commit to the branch, which is replaced if it is there; return the commit.

    Raises:
        SandboxError: git failed, for instance because the patch does not apply; the text has no secrets.
    """
    with tempfile.TemporaryDirectory(prefix="gepa-deliver-") as name:
        folder = Path(name)
        await git("init", "--quiet", "--bare", "--template=", ".", folder=folder)

        async def local(*arguments: str, stdin: bytes = b"") -> str:
            printed = await git(*arguments, folder=folder, bare=True, stdin=stdin, settings=SERVICE_AUTHOR)
            return printed.decode("utf-8", "replace").strip()

        await fetch(repository, change.base, folder, credentials, bare=True)
        await local("read-tree", change.base)
        if change.patch is not None:
            await local("apply", "--cached", "--binary", "--whitespace=nowarn", "-", stdin=change.patch.encode())
        for path, content in change.files(repository.folder, await _config(local, repository.folder)).items():
            written = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
            blob = await local("hash-object", "-w", "--stdin", stdin=written.encode("utf-8", "surrogatepass"))
            await local("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}")
        tree = await local("write-tree")
        commit = await local("commit-tree", tree, "-p", change.base, stdin=change.message.encode())
        pushed = ("push", "--quiet", "--end-of-options", repository.url, f"+{commit}:refs/heads/{branch}")
        await remote_git(repository, *pushed, folder=folder, credentials=credentials, timeout_s=PUSH_S, bare=True)
    return commit


async def _config(local: Callable[..., Awaitable[str]], folder: str) -> dict[str, Any]:
    """Return the program's `gepa.toml` in the index; empty if there is none that can be read."""
    file = posixpath.join(folder, "gepa.toml")
    if not await local("ls-files", "--", file):
        return {}
    try:
        return tomllib.loads(await local("cat-file", "blob", f":{file}"))
    except ValueError:
        return {}
