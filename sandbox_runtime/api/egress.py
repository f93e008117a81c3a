"""What a sandbox may connect to: its egress rules, and the interface of its session at the gateway."""

import ipaddress
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

_DOMAIN = re.compile(r"(\*\.)?([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]*[a-z0-9])?", re.IGNORECASE)


@dataclass(frozen=True)
class Closed:
    """Nothing but the gateway, if the sandbox has a `GatewaySession`."""


@dataclass(frozen=True)
class Allow:
    """These hosts and no others.

    `domains`: names, or `*.name` for everything below one. The backend or the gateway resolves them; an address that is
    not public is allowed only if one of `cidrs` contains it. `cidrs`: networks, `192.0.2.0/24`, or addresses.

    Raises:
        ValueError: an entry is neither.
    """

    domains: tuple[str, ...] = ()
    cidrs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for domain in self.domains:
            if not _DOMAIN.fullmatch(domain):
                raise ValueError(f"{domain!r} is not the name of a host: write `example.com` or `*.example.com`")
        for cidr in self.cidrs:
            try:
                ipaddress.ip_network(cidr)
            except ValueError as error:
                raise ValueError(f"{cidr!r} is not a network: {error}") from None


@dataclass(frozen=True)
class Open:
    """Every host."""


Egress = Closed | Allow | Open


def egress_to(hosts: tuple[str, ...]) -> Egress:
    """Return the egress for a list of hosts: empty is `Closed`, `*` is `Open`, others are names of hosts and networks.

    Raises:
        ValueError: `*` is not alone, or an entry is neither a name nor a network.
    """
    if not hosts:
        return Closed()
    if "*" in hosts:
        if len(hosts) > 1:
            raise ValueError("`*` allows every host: leave the others out")
        return Open()
    cidrs = tuple(host for host in hosts if _is_network(host))
    return Allow(tuple(host for host in hosts if host not in cidrs), cidrs)


def _is_network(host: str) -> bool:
    try:
        ipaddress.ip_network(host)
    except ValueError:
        return "/" in host  # then `Allow` raises the error
    return True


MODELS_PORT = 8181
"""The loopback port of the gateway's models in a sandbox that has a network of its own."""

TUNNEL_PORT = 8182
"""The loopback port of the gateway's proxy (`CONNECT`) in such a sandbox."""


class GatewaySession(Protocol):
    """What one sandbox may use of the gateway, until it is closed. Its token is of no use to others."""

    @property
    def models_url(self) -> str | None:
        """The address of the gateway's models; None if only the sockets given to `serve` reach it."""
        ...

    async def serve(self, models: socket.socket, tunnel: socket.socket) -> None:
        """Answer on these sockets too, which listen on the sandbox's own loopback; the gateway then owns them."""
        ...

    def env(self, models_url: str, tunnel_url: str | None) -> Mapping[str, str]:
        """Return the variables by which programs find it at these addresses: `OPENAI_BASE_URL`, `HTTPS_PROXY`, ...

        `tunnel_url`: None for programs that use no proxy.
        """
        ...

    async def close(self) -> None:
        """Answer nothing more, and end running requests. Safe to call twice."""
        ...
