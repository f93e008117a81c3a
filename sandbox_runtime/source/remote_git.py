"""Run git outside of sandboxes with the credentials for one host."""

import base64
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from evolverpc_common.git import LOCAL_TIMEOUT_S, GitError, run_git_async
from evolverpc_common.network_addresses import is_loopback
from sandbox_runtime.api.sandbox import SandboxError

_USERNAME, _PASSWORD = "EVOLVERPC_GIT_USERNAME", "EVOLVERPC_GIT_PASSWORD"
_HELPER = f"""!f() {{ test "$1" = get && printf 'username=%s\\npassword=%s\\n' "${_USERNAME}" "${_PASSWORD}"; }}; f"""


class GitFailed(SandboxError):
    """Git failed; the text is git's message, without secrets."""


@dataclass(frozen=True)
class Credentials:
    """A user and a password for the server of `url`, given to git in the environment of one command."""

    url: str
    username: str
    password: str = field(repr=False)

    @property
    def basic(self) -> str:
        """Both, as HTTP's basic authentication encodes them."""
        return base64.b64encode(f"{self.username}:{self.password}".encode()).decode()

    def settings(self) -> dict[str, str]:
        """Return settings that disable the user's credential helpers, which would store the password."""
        parts = urllib.parse.urlsplit(self.url)
        return {"credential.helper": "", f"credential.{parts.scheme}://{parts.netloc}.helper": _HELPER}

    def variables(self) -> dict[str, str]:
        """Return the variables that our helper prints."""
        return {_USERNAME: self.username, _PASSWORD: self.password}

    def redacted(self, text: str) -> str:
        """Return the text without the password, in any form that git or a server may echo."""
        forms = {self.password, urllib.parse.quote(self.password, safe=""), self.basic}
        for form in sorted(forms - {""}, key=len, reverse=True):
            text = text.replace(form, "***")
        return text


async def git(
    *arguments: str,
    folder: Path,
    stdin: bytes = b"",
    bare: bool = False,
    network: bool = False,
    settings: Mapping[str, str] | None = None,
    credentials: Credentials | None = None,
    timeout_s: float = LOCAL_TIMEOUT_S,
) -> bytes:
    """Run git outside of sandboxes, and return what it writes to stdout.

    `bare`: the folder itself is the repository. `network`: git may reach other repositories.

    Raises:
        GitFailed: git failed, is not installed, or took longer than `timeout_s` seconds.
    """
    variables = {"GIT_DIR": "."} if bare else {}
    settings = {"core.logAllRefUpdates": "false", **(settings or {})}
    if credentials:
        settings |= credentials.settings()
        variables |= credentials.variables()
    try:
        return await run_git_async(
            *arguments,
            folder=folder,
            stdin=stdin,
            settings=settings,
            variables=variables,
            network=network,
            timeout_s=timeout_s,
        )
    except GitError as error:
        text = error.stderr or str(error)
        raise GitFailed(f"git {arguments[0]}: {credentials.redacted(text) if credentials else text}") from None


async def line(*arguments: str, folder: Path, bare: bool = False) -> str:
    """Return the one line that the command writes. Raises as `git`."""
    return (await git(*arguments, folder=folder, bare=bare)).decode("utf-8", "surrogateescape").rstrip("\n")


FETCH = ("fetch", "--quiet", "--depth=1", "--no-tags", "--no-write-fetch-head", "--end-of-options")
"""A fetch of one commit, without those before it: what follows is the address and the commit."""

TOKEN_USER = "x-access-token"  # noqa: S105  a user's name
"""GitHub's user for tokens; GitLab and others accept any."""


class CredentialsFailed(SandboxError):
    """Credentials are configured and not available; the text names them, and what to do."""


@dataclass(frozen=True)
class GitToken:
    """A token for one host, `example.com` or `example.com:8443`; never sent over plain http beyond loopback."""

    token: str = field(repr=False)
    host: str = "github.com"

    @classmethod
    def from_file(cls, file: Path, host: str = "github.com") -> "GitToken":
        """Read the token from a file. Raises `CredentialsFailed`."""
        try:
            token = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise CredentialsFailed(f"the git token in {file} cannot be read: {error}") from None
        if not token or not token.isprintable() or " " in token:
            raise CredentialsFailed(f"{file} holds no token for git: one line is expected")
        return cls(token, host)

    def for_url(self, url: str) -> Credentials | None:
        """Return the token for a URL of its own host, None for any other."""
        return Credentials(url, TOKEN_USER, self.token) if is_for(self.host, url) else None


def is_for(host: str, url: str) -> bool:
    """Return whether a URL belongs to this host, and its traffic is private."""
    parts = urllib.parse.urlsplit(url)
    private = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname))
    return private and parts.netloc.lower() == host.lower()
