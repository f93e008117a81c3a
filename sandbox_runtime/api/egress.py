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
    """Nothing but the way out the sandbox was given, if any: see `GatewaySession`."""


@dataclass(frozen=True)
class Allow:
    """These hosts, and no others.

    `domains`: names, or `*.name` for everything below one. They are resolved by whoever enforces this, and an address
    that is not public counts only where one of `cidrs` names it. `cidrs`: networks, `192.0.2.0/24` or an address.

    Raises:
        ValueError: one of them is neither.
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
    """Whatever there is to reach."""


Egress = Closed | Allow | Open


def egress_to(hosts: tuple[str, ...]) -> Egress:
    """What a list as people write it means: empty is `Closed`, `*` is `Open`, the rest names of hosts and networks.

    Raises:
        ValueError: `*` stands beside others, or one of them is neither a name nor a network.
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
        return "/" in host  # then `Allow` says what is wrong with it
    return True


MODELS_PORT = 8181
"""Where programs find the gateway's model providers, on loopback of a sandbox that has a network of its own."""

TUNNEL_PORT = 8182
"""Where they find its proxy (`CONNECT`)."""


class GatewaySession(Protocol):
    """What one sandbox may use of the gateway; worth nothing to anybody else, and nothing once it is closed."""

    @property
    def models_url(self) -> str | None:
        """Where the gateway can be reached by itself, None where that is through `serve` alone."""
        ...

    @property
    def tunnel_url(self) -> str | None:
        """The same for its proxy."""
        ...

    async def serve(self, models: socket.socket, tunnel: socket.socket) -> None:
        """Answer on these listening sockets too, which are the sandbox's own loopback; they are the gateway's now."""
        ...

    def env(self, models_url: str, tunnel_url: str) -> Mapping[str, str]:
        """The variables by which programs find it at these addresses: `OPENAI_BASE_URL`, `HTTPS_PROXY`, ..."""
        ...

    async def close(self) -> None:
        """Nothing is answered any more, and what was under way is ended. Safe to call twice."""
        ...
