"""Who may read a repository: a user and a password for git, asked for when they are needed, told to one host alone."""

import os
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from evolverpc_common.network_addresses import is_loopback
from sandbox_runtime.api.sandbox import SandboxError

TOKEN_USER = "x-access-token"  # noqa: S105  a user's name
"""GitHub's user for tokens; GitLab and others take any."""


class CredentialsFailed(SandboxError):
    """There are to be credentials and they cannot be had; the text says for what, and what to do."""


class GitCredentials(Protocol):
    """Gives what git needs for a URL."""

    async def for_url(self, url: str) -> tuple[str, str] | None:
        """User and password, None where it has none for that. Raises `CredentialsFailed`."""
        ...


@dataclass(frozen=True)
class GitToken:
    """A plain token for one host, `example.com` or `example.com:8443`; never sent over plain http beyond loopback."""

    token: str = field(repr=False)
    host: str = "github.com"
    user: str = TOKEN_USER

    @classmethod
    def from_file(cls, file: Path, host: str = "github.com", user: str = TOKEN_USER) -> "GitToken":
        """The token that is in a file. Raises `CredentialsFailed`."""
        try:
            return cls(_told(file.read_text(encoding="utf-8"), str(file)), host, user)
        except (OSError, UnicodeDecodeError) as error:
            raise CredentialsFailed(f"the git token in {file} cannot be read: {error}") from None

    @classmethod
    def from_environment(cls, variable: str, host: str = "github.com", user: str = TOKEN_USER) -> "GitToken":
        """The token that is in a variable. Raises `CredentialsFailed`."""
        return cls(_told(os.environ.get(variable, ""), f"${variable}"), host, user)

    async def for_url(self, url: str) -> tuple[str, str] | None:
        """The token, for its own host."""
        return (self.user, self.token) if is_for(self.host, url) else None


@dataclass(frozen=True)
class FirstOf:
    """The first of several that has some for a URL."""

    several: Sequence[GitCredentials]

    async def for_url(self, url: str) -> tuple[str, str] | None:
        """What it says."""
        for credentials in self.several:
            found = await credentials.for_url(url)
            if found is not None:
                return found
        return None


def is_for(host: str, url: str) -> bool:
    """Whether a URL is of this host, and what is sent there is for nobody else to read."""
    parts = urllib.parse.urlsplit(url)
    private = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname))
    return private and parts.netloc.lower() == host.lower()


def _told(text: str, where: str) -> str:
    token = text.strip()
    if not token or not token.isprintable() or " " in token:
        raise CredentialsFailed(f"{where} holds no token for git: one line is expected")
    return token
