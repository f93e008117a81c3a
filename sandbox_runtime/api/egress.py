"""What a sandbox may reach: nothing, what is listed, or everything; a backend that cannot enforce it refuses it."""

import ipaddress
import re
from dataclasses import dataclass

_DOMAIN = re.compile(r"(\*\.)?([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]*[a-z0-9])?", re.IGNORECASE)


@dataclass(frozen=True)
class Closed:
    """Nothing but the way out the sandbox was given, if any: see `Passage`."""


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


def allowing(hosts: tuple[str, ...]) -> Egress:
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
