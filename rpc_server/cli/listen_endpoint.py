"""The endpoint of the server: its listen address, from settings or `GEPA_LISTEN`, and its bearer token."""

import os
import secrets
import socket
import tempfile
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from evolverpc_common.git import GitError, exclude_from_git
from evolverpc_common.network_addresses import CannotListen, bound_socket, is_loopback, parse_host_port, url_host
from evolverpc_common.settings.sources import ALLOWED_HOSTS, SettingsError
from rpc_server.cli import TOKEN_VARIABLE
from rpc_server.settings import Settings

LISTEN_VARIABLE = "GEPA_LISTEN"
"""`fd:3`, an inherited listening socket of either family; or `HOST:PORT`. Overrides a configuration file.

If it is set, `GEPA_TOKEN` overrides a configuration file's `token_file`: clients come through that process too.
"""

_CONFLICTING = ("host", "port")


def apply_listen_address(
    settings: Settings, environment: MutableMapping[str, str], flags: Mapping[str, Any]
) -> tuple[Settings, socket.socket | None]:
    """Return the settings with these variables applied, and the inherited socket; clear the variables.

    Raises:
        SettingsError: the value is invalid, there is no such socket, or flags set an address too.
    """
    where, hosts = environment.pop(LISTEN_VARIABLE, None), environment.pop(ALLOWED_HOSTS, "")
    changes: dict[str, Any] = {}
    if further := tuple(filter(None, (host.strip() for host in hosts.split(",")))):
        changes["allowed_hosts"] = (*settings.allowed_hosts, *further)
    inherited = None
    if where is not None:
        conflicting = [f"--{name}" for name in _CONFLICTING if name in flags]
        if conflicting:
            raise SettingsError(
                f"{LISTEN_VARIABLE} is set, and {' and '.join(conflicting)} given: leave one of them out"
            )
        if TOKEN_VARIABLE in environment:
            if "token_file" in flags:
                raise SettingsError(
                    f"{LISTEN_VARIABLE} and {TOKEN_VARIABLE} are set, and --token-file given: leave --token-file out"
                )
            changes["token_file"] = None
        if where.startswith("fd:"):
            inherited = _inherited(where)
            changes["host"], changes["port"] = _bound_to(inherited)
        else:
            changes["host"], changes["port"] = _address(where)
    return settings.model_copy(update=changes), inherited


@contextmanager
def bound(settings: Settings, inherited: socket.socket | None) -> Iterator[socket.socket]:
    """Yield the inherited socket, else one bound before the program starts, so that a taken port fails at once."""
    if inherited is None:
        perhaps = ", perhaps by a server that you started before: end it"
        try:
            inherited = bound_socket(settings.host, settings.port, in_use=perhaps)
        except CannotListen as error:
            raise SettingsError(str(error)) from None
    with inherited as sock:
        yield sock


def url_of(settings: Settings, sock: socket.socket) -> str:
    """Return the URL of the methods on this socket."""
    if _is_unix(sock):
        return f"http+unix://{quote(sock.getsockname(), safe='')}/rpc"
    return f"http://{url_host(settings.host)}:{sock.getsockname()[1]}/rpc"


def _inherited(where: str) -> socket.socket:
    number = where.removeprefix("fd:")
    if not number.isdecimal():
        raise SettingsError(f"{LISTEN_VARIABLE}={where}: write the number of a descriptor, as in fd:3")
    try:
        sock = socket.socket(fileno=int(number))
    except (OSError, OverflowError) as error:
        raise SettingsError(f"{LISTEN_VARIABLE}={where}: descriptor {number} is not a socket: {error}") from None
    if not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        sock.close()
        raise SettingsError(f"{LISTEN_VARIABLE}={where}: the socket does not listen")
    sock.set_inheritable(False)  # the program's processes must not inherit it
    return sock


def _bound_to(sock: socket.socket) -> tuple[str, int]:
    """Return its address as settings; a unix socket, which only this machine reaches, counts as loopback."""
    if _is_unix(sock):
        return "localhost", 0
    host, port = sock.getsockname()[:2]
    return host, port


def _is_unix(sock: socket.socket) -> bool:
    return sock.family == getattr(socket, "AF_UNIX", None)


def _address(where: str) -> tuple[str, int]:
    parts = parse_host_port(where)
    if parts is None:
        raise SettingsError(f"{LISTEN_VARIABLE}={where}: write fd:3, HOST:PORT or [HOST]:PORT")
    return parts


@dataclass(frozen=True)
class Token:
    """`file`: where a client can read it, None if it came from the environment. `given`: not generated for this run.

    `excluded_by`: the file of the git repository around `file` that now has git ignore it; None if nothing was needed.
    """

    value: str
    given: bool
    file: Path | None
    excluded_by: Path | None = None


@contextmanager
def token_for(settings: Settings, environment: MutableMapping[str, str]) -> Iterator[Token]:
    """Yield the token: `token_file`, else `GEPA_TOKEN` (cleared from the environment), else a random one.

    A missing `token_file` is created with a random token, readable by its owner, and stays: the next start has the same
    token, so that clients find the server again. If it is in a git repository, git is made to ignore it.

    Raises:
        SettingsError: the token is unusable, or an address that others can reach has none.
    """
    from_environment = environment.pop(TOKEN_VARIABLE, None)
    if settings.token_file is not None:
        path = Path(os.path.normpath(settings.root / settings.token_file))
        excluded_by = None
        with suppress(FileExistsError):
            _make(path)
            excluded_by = _excluded(path)
        yield Token(_usable(_read(path), str(path)), given=True, file=path, excluded_by=excluded_by)
    elif from_environment is not None:
        yield Token(_usable(from_environment, TOKEN_VARIABLE), given=True, file=None)
    elif not is_loopback(settings.host):
        raise SettingsError(
            f"host {settings.host} can be reached by others: give a token by `token_file` or {TOKEN_VARIABLE}"
        )
    else:
        with tempfile.TemporaryDirectory(prefix="gepa-server-", ignore_cleanup_errors=True) as folder:
            path = Path(folder, "token")
            yield Token(_make(path), given=False, file=path)


def _make(path: Path) -> str:
    """Write a random token to a new file, atomically, as two servers may start at once.

    Raises:
        FileExistsError: it exists, and is left unchanged.
        SettingsError: it cannot be created.
    """
    value = secrets.token_urlsafe(32)
    try:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".token-") as file:  # mode 0600
            file.write(value + "\n")
            file.flush()
            os.link(file.name, path)
    except FileExistsError:
        raise
    except OSError as error:
        raise SettingsError(f"`token_file` {path} cannot be made: {error.strerror}") from None
    return value


def _excluded(path: Path) -> Path | None:
    try:
        return exclude_from_git(path)
    except (OSError, GitError) as error:
        path.unlink(missing_ok=True)  # a next start would find it, and take it for the user's own
        raise SettingsError(
            f"`token_file` {path} is in a git repository and would be committed ({error}): correct that, or name a "
            "file outside of the repository"
        ) from None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"`token_file` {path} cannot be read: {error}") from None


def _usable(text: str, source: str) -> str:
    token = text.strip()
    if not token:
        raise SettingsError(f"{source} holds an empty token")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise SettingsError(f"{source}: a token is one word of printable ASCII")
    return token
