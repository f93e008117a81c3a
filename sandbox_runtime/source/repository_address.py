"""The address of a program's repository: a folder of this machine or a URL, with the program's folder behind `#`."""

import posixpath
import re
import urllib.parse
from dataclasses import dataclass
from pathlib import Path

from evolverpc_common.network_addresses import is_loopback

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
