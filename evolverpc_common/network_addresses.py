"""Network addresses: parse, classify (loopback, public, of this machine) and bind them."""

import errno
import ipaddress
import re
import socket
from collections.abc import Sequence

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# IANA's special-purpose registries, multicast, and the host below Azure's machines (168.63.129.16); listed here because
# the addresses that Python calls global change between versions.
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

_HOST_PORT = re.compile(r"(?:\[(?P<six>[^]]+)\]|(?P<host>[^:]+)):(?P<port>[0-9]{1,5})")


def parse_address(text: str) -> Address | None:
    """Return the IP address that a text is, None if it is none. An IPv4 address inside IPv6 is returned as IPv4."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def parse_networks(cidrs: Sequence[str]) -> tuple[Network, ...]:
    """Parse networks in CIDR notation. Raises `ValueError`."""
    return tuple(map(ipaddress.ip_network, cidrs))


def parse_host_port(text: str) -> tuple[str, int] | None:
    """Split `HOST:PORT` or `[IPV6]:PORT`; None if the text is neither."""
    match = _HOST_PORT.fullmatch(text)
    if match is None or int(match["port"]) > 65535:
        return None
    return match["six"] or match["host"], int(match["port"])


def url_host(host: str) -> str:
    """Return a host as URLs write it: IPv6 addresses in brackets."""
    return f"[{host}]" if ":" in host else host


def is_loopback(host: str | None) -> bool:
    """Return whether a host is `localhost` or a loopback address, so that its traffic never leaves this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


class CannotListen(Exception):
    """The address cannot be listened on; the text names it and what to do."""


def bound_socket(host: str, port: int, *, backlog: int | None = None, in_use: str = "") -> socket.socket:
    """Return a socket that is bound to an address; with a `backlog` it listens.

    `in_use`: what a port may be in use by, for the message.

    Raises:
        CannotListen: with the reason.
    """
    try:
        family, kind, number, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, number)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            if backlog is not None:
                sock.listen(backlog)
        except OSError:
            sock.close()
            raise
    except OSError as error:
        why = str(error.strerror)
        if error.errno == errno.EADDRINUSE:
            why = f"the port is in use{in_use}, or give another --port (0 for a free one)"
        raise CannotListen(f"cannot listen on {host} port {port}: {why}") from None
    return sock


def refusal_reason(address: Address, allowed: Sequence[Network]) -> str | None:
    """Return why a sandbox may not connect to an address; None if it may.

    Public addresses of other machines are allowed, and addresses in the networks `allowed`.
    """
    if any(address in network for network in allowed):
        return None
    if not is_public(address):
        return f"{address} is not a public address"
    if _is_local(address):
        return f"{address} is this machine's own"
    return None


def is_public(address: Address) -> bool:
    """Return whether an address is a public Internet address. A NAT64 address is judged by the IPv4 address in it."""
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            return is_public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        return address in _PUBLIC_6 and not any(address in network for network in _NOT_PUBLIC_6)
    return not any(address in network for network in _NOT_PUBLIC_4)


def _is_local(address: Address) -> bool:
    """Return whether this machine has the address: only an own address can be bound."""
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True


def free_port() -> int:
    """Return a port at which nothing of this machine listens now."""
    with socket.create_server(("", 0)) as found:
        return int(found.getsockname()[1])
