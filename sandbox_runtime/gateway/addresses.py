"""Which addresses a sandbox may be connected to: public ones of other machines, and those that were named."""

import ipaddress
import socket
from collections.abc import Sequence

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# IANA's special-purpose registries, multicast, and the host beneath Azure's machines (168.63.129.16); written out, for
# what Python calls global changes between versions.
_NOT_PUBLIC_4 = tuple(
    map(
        ipaddress.IPv4Network,
        (
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
            "168.63.129.16/32",
            *("192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24"),
            *("192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
            *("224.0.0.0/4", "240.0.0.0/4"),
        ),
    )
)
_PUBLIC_6 = ipaddress.IPv6Network("2000::/3")
_NOT_PUBLIC_6 = tuple(
    map(ipaddress.IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20"))
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def read(text: str) -> Address | None:
    """An address as it is written; one that an IPv6 address carries is what it stands for. None: it is not one."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def networks(cidrs: Sequence[str]) -> tuple[Network, ...]:
    """Read from `Allow.cidrs`."""
    return tuple(map(ipaddress.ip_network, cidrs))


def why_not(address: Address, named: Sequence[Network]) -> str | None:
    """Why a sandbox is not connected to it; None where it may be. `named`: what the egress names by address."""
    if any(address in network for network in named):
        return None
    if not public(address):
        return f"{address} is not a public address"
    if _ours(address):
        return f"{address} is this machine's own"
    return None


def public(address: Address) -> bool:
    """Whether it is one of the internet's. What NAT64 carries is judged by the IPv4 address within."""
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            return public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        return address in _PUBLIC_6 and not any(address in network for network in _NOT_PUBLIC_6)
    return not any(address in network for network in _NOT_PUBLIC_4)


def _ours(address: Address) -> bool:
    """Whether this machine has it: nobody else's can be bound."""
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True
