"""Where a server is and what proves that we may talk to it: URL and token, checked before anything is sent."""

import ipaddress
import os
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from gepa_client.causes import unreadable
from gepa_client.errors import Refused

TOKEN_VARIABLE = "GEPA_TOKEN"  # noqa: S105 - the name of the variable, not a token
RPC_PATH = "/rpc"


def rpc_url(url: str, *, allow_insecure: bool = False) -> str:
    """The address to post to; `url` may be given with or without `/rpc`.

    Raises:
        Refused: not http(s), credentials or a query in the URL, or plain http beyond this machine.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        hint = f"; did you mean http://{url}?" if "://" not in url and urlsplit(f"http://{url}").hostname else ""
        raise Refused(f"{url!r} is not an http or https address{hint}")
    if parts.username is not None or parts.password is not None:
        raise Refused(f"credentials do not belong in a URL; set {TOKEN_VARIABLE} or give a token file")
    if parts.query or parts.fragment:
        raise Refused("the address of a server has no query and no fragment")
    if parts.scheme == "http" and not allow_insecure and not is_loopback(parts.hostname):
        raise Refused(
            f"plain http to {parts.hostname} would send the token and the data in clear; use https, or --allow-insecure"
        )
    path = parts.path.rstrip("/")
    if not path.endswith(RPC_PATH):
        path += RPC_PATH
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def is_loopback(host: str) -> bool:
    """Whether packets to this host never leave this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def find_token(token: str | None = None, token_file: Path | str | None = None) -> str | None:
    """The token as given, else from the file, else from the environment; None where there is none.

    Raises:
        Refused: the file cannot be read, a token is empty, or it holds what no HTTP header may carry.
    """
    if token is not None:
        return _usable(token, "the token given")
    if token_file is not None:
        try:
            return _usable(Path(token_file).read_text(encoding="utf-8"), f"the token file {token_file}")
        except (OSError, UnicodeDecodeError) as error:
            raise Refused(f"the token file {unreadable(token_file, error)}") from error
    in_environment = os.environ.get(TOKEN_VARIABLE, "")
    # an empty variable is how a shell says that there is none
    return _usable(in_environment, TOKEN_VARIABLE) if in_environment.strip() else None


def refused(token: str | None = None, token_file: Path | str | None = None) -> str:
    """What to do when a server accepts no call with the token that `find_token` finds for the same arguments."""
    if token is not None:
        source = "that was given"
    elif token_file is not None:
        source = f"from {token_file}"
    elif os.environ.get(TOKEN_VARIABLE, "").strip():
        source = f"from {TOKEN_VARIABLE}"
    else:
        return f"no token was given: use --token-file FILE (gepa-server printed its path) or {TOKEN_VARIABLE}"
    return f"the server refused the token {source}; is it from an older start of the server?"


def _usable(token: str, source: str) -> str:
    token = token.strip()
    if not token:
        raise Refused(f"{source} is empty")
    if not token.isascii() or not token.isprintable():
        raise Refused(f"{source} holds characters that no HTTP header may carry")
    return token
