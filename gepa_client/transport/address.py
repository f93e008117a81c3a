"""Where a server is and what proves that we may talk to it: URL and token, checked before anything is sent."""

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, quote, unquote, urlsplit, urlunsplit

from evolverpc_common.network_addresses import is_loopback
from gepa_client.errors import Refused, unreadable

TOKEN_VARIABLE = "GEPA_TOKEN"  # noqa: S105 - the name of the variable, not a token
RPC_PATH = "/rpc"

SOCKET_SCHEME = "http+unix"
"""Of a server that listens on a socket of this machine's file system: `http+unix://%2Frun%2Fserver`."""

LONGEST_SOCKET_PATH = 107
"""Bytes of a socket's path that the kernel takes (`sun_path`)."""


@dataclass(frozen=True)
class Address:
    """The address of a server and its credentials.

    `url`: with or without `/rpc`. `token`: else from `token_file`, else from the environment. `proxy_token_file`: of a
    proxy in front of the server. `allow_insecure`: plain http beyond this machine. `listed`: it comes from a fleet
    file, and leaves the fleet when the file no longer names it.
    """

    url: str
    token: str | None = None
    token_file: Path | str | None = None
    proxy_token_file: Path | str | None = None
    allow_insecure: bool = False
    listed: bool = False

    def __repr__(self) -> str:
        return f"Address({self.url!r})"  # keep the token out of tracebacks

    def tokens(self) -> tuple[str | None, str | None]:
        """Return the tokens of the server and of the proxy in front of it, None for each that there is none of.

        Raises:
            Refused: as `find_token`.
        """
        proxy_token = None if self.proxy_token_file is None else find_token(None, self.proxy_token_file)
        return find_token(self.token, self.token_file), proxy_token


def rpc_url(url: str, *, allow_insecure: bool = False) -> str:
    """Return the address to post to; `url` may be given with or without `/rpc`.

    Raises:
        Refused: not http(s) nor a socket's path, credentials or a query in it, or plain http beyond this machine.
    """
    parts = urlsplit(url)
    if parts.scheme == SOCKET_SCHEME:
        return _socket_url(url, parts)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        meant = f"http://127.0.0.1:{url}" if url.isdecimal() else f"http://{url}"
        hint = f"; did you mean {meant}?" if "://" not in url and urlsplit(meant).hostname else ""
        if Path(url).is_file():
            hint = (
                ", but a file: start a server of the program, as `evolverpc serve FILE.py` or `npx tsx FILE.ts`, "
                "and give the address that it prints"
            )
        raise Refused(f"{url!r} is not an http or https address{hint}")
    if _port(parts) is None:
        raise Refused(f"{url!r} has no usable port: give the one that the server prints, from 1 to 65535")
    if parts.username is not None or parts.password is not None:
        raise Refused(f"credentials do not belong in a URL; set {TOKEN_VARIABLE} or give a token file")
    _without_query(parts)
    if parts.scheme == "http" and not allow_insecure and not is_loopback(parts.hostname):
        raise Refused(
            f"plain http to {parts.hostname} would send the token and the data in clear; use https, or `allow_insecure`"
        )
    return urlunsplit((parts.scheme, parts.netloc, _rpc_path(parts), "", ""))


def socket_of(url: str) -> str | None:
    """Return the path of the socket in an address from `rpc_url`; None if it names a host."""
    parts = urlsplit(url)
    return unquote(parts.netloc) if parts.scheme == SOCKET_SCHEME else None


def http_url(url: str) -> str:
    """Return the HTTP URL of an address from `rpc_url`; a socket needs a connector of its own as well."""
    parts = urlsplit(url)
    return urlunsplit(("http", "localhost", parts.path, "", "")) if parts.scheme == SOCKET_SCHEME else url


def _socket_url(url: str, parts: SplitResult) -> str:
    """Return the address with its path in the one canonical notation."""
    path = unquote(parts.netloc)
    if not path.startswith("/") or "\0" in path:
        raise Refused(f"{url!r} names no socket: write its full path with %2F for /, as in http+unix://%2Frun%2Fserver")
    if len(os.fsencode(path)) > LONGEST_SOCKET_PATH:
        raise Refused(f"the path of the socket {path} is longer than {LONGEST_SOCKET_PATH} bytes, which no socket's is")
    _without_query(parts)
    return urlunsplit((SOCKET_SCHEME, quote(path, safe=""), _rpc_path(parts), "", ""))


def _port(parts: SplitResult) -> int | None:
    """Return the port, that of the scheme if none is given; None if no server can have it."""
    try:
        return (parts.port if parts.port is not None else 80) or None
    except ValueError:
        return None


def _without_query(parts: SplitResult) -> None:
    if parts.query or parts.fragment:
        raise Refused("the address of a server has no query and no fragment")


def _rpc_path(parts: SplitResult) -> str:
    path = parts.path.rstrip("/")
    return path if path.endswith(RPC_PATH) else path + RPC_PATH


def find_token(token: str | None = None, token_file: Path | str | None = None) -> str | None:
    """Return the token as given, else from the file, else from the environment; None if there is none.

    Raises:
        Refused: the file cannot be read, a token is empty, or it holds what no HTTP header may carry.
    """
    if token is not None:
        return _usable(token, "the token given")
    if token_file is not None:
        try:
            return _usable(Path(token_file).read_text(encoding="utf-8"), f"the token file {token_file}")
        except (OSError, UnicodeDecodeError) as error:
            made = "; `evolverpc serve --token-file` makes it" if isinstance(error, FileNotFoundError) else ""
            raise Refused(f"the token file {unreadable(token_file, error)}{made}") from error
    in_environment = os.environ.get(TOKEN_VARIABLE, "")
    # a shell unsets a variable by making it empty
    return _usable(in_environment, TOKEN_VARIABLE) if in_environment.strip() else None


def refused(token: str | None = None, token_file: Path | str | None = None) -> str:
    """Return what to do if a server refuses the token that `find_token` finds for the same arguments."""
    if token is not None:
        source = "that was given"
    elif token_file is not None:
        source = f"from {token_file}"
    elif os.environ.get(TOKEN_VARIABLE, "").strip():
        source = f"from {TOKEN_VARIABLE}"
    else:
        return (
            "no token was given: use --token-file FILE (the server printed its path), `token-file=FILE` after a URL in "
            f"a file of servers, or {TOKEN_VARIABLE}"
        )
    return f"the server refused the token {source}; is it from an older start of the server?"


def _usable(token: str, source: str) -> str:
    token = token.strip()
    if not token:
        raise Refused(f"{source} is empty")
    if not token.isascii() or not token.isprintable():
        raise Refused(
            f"{source} holds no token, which is one line of printable ASCII: "
            "give the token file that the server printed"
        )
    return token
