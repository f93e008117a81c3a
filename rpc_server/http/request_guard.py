"""Which requests are admitted: their token, `Host` and `Origin`."""

import hashlib
import hmac
from collections.abc import Iterable

from multidict import MultiMapping

from protocol.errors import Unauthorized

TOKEN_HEADER = "X-Gepa-Token"  # noqa: S105  # the name of a header, not a token
"""Carries the token if a proxy uses `Authorization`."""

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


class Guard:
    """Admits requests. A foreign `Host` may be a rebound DNS name; an `Origin` is a page in a browser."""

    def __init__(self, *, token: str, bound_host: str, allowed_hosts: Iterable[str] = ()) -> None:
        self._token = _digest(token)
        bound = f"[{bound_host}]" if ":" in bound_host else bound_host
        self._origins = frozenset(host for host in allowed_hosts if "://" in host)
        self._hosts = frozenset(host.lower() for host in {*_LOOPBACK_NAMES, bound, *allowed_hosts} - self._origins)

    def check_source(self, headers: MultiMapping[str]) -> None:
        """Accept an allowed host with any port, or an allowed `name:port`, and no foreign origin.

        Raises `Unauthorized`.
        """
        host, origin = (_value(headers, "Host") or "").lower(), _value(headers, "Origin")
        if host not in self._hosts and _without_port(host) not in self._hosts:
            raise Unauthorized(reason="host")
        if origin is not None and origin not in self._origins:
            raise Unauthorized(reason="origin")

    def check_token(self, headers: MultiMapping[str]) -> None:
        """Accept `X-Gepa-Token: <token>`, or without that header `Authorization: Bearer <token>`.

        The time taken reveals nothing of the token. Raises `Unauthorized`.
        """
        given = _value(headers, TOKEN_HEADER)
        if given is None:
            scheme, _, given = (_value(headers, "Authorization") or "").partition(" ")
        else:
            scheme = "bearer"
        # Digests have one length, so that not even the token's length shows in the time taken.
        if not hmac.compare_digest(_digest(given.strip()), self._token) or scheme.lower() != "bearer":
            raise Unauthorized


def _value(headers: MultiMapping[str], name: str) -> str | None:
    """Join all values of a header as HTTP does: a header sent twice matches no single allowed value."""
    values = headers.getall(name, None)
    return None if values is None else ", ".join(values)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host
