"""Which hosts the service connects to for a tenant: public ones, unless the operator allows a network.

A tenant names URLs (repositories, webhooks, model providers), and the service's machine reaches networks that the
tenant does not. So a name is resolved here, each of its addresses is judged, and the connection is then made to the
addresses that were judged, even if the name resolves to others later.
"""

import ipaddress
import re
import socket
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass

from evolverpc_common.network_addresses import Address, Network, parse_address, refusal_reason

LONGEST_URL = 2000
UNKNOWN_REMEDY = ": correct the URL, or the service has no network or DNS now"
DEFAULT_PORTS = {"https": 443, "http": 80}
_HOST = re.compile(r"[a-z0-9._-]*[a-z0-9]|[0-9a-f:.]*:[0-9a-f:.]*")
"""A host that is the same text for every program that reads the URL: a name of ASCII letters, or an address of IPv6."""


class DestinationRefused(Exception):
    """A destination or repository that the service does not allow; the text has the reason, and no private address."""


class HostUnknown(DestinationRefused):
    """The name has no address now."""


@dataclass(frozen=True)
class Destination:
    """A host and port that may be connected to, with the addresses that were judged."""

    scheme: str
    host: str
    port: int
    addresses: tuple[Address, ...]


def destination_of(url: str, allowed: Sequence[Network]) -> Destination:
    """Return where a URL leads, if the service may connect there. Resolves the name, so it blocks.

    `allowed`: networks besides the public ones. Plain http is for these alone.

    Raises:
        DestinationRefused: the URL is no URL of http or https, holds a password, or leads to another network.
    """
    if len(url) > LONGEST_URL or not url.isprintable() or " " in url:
        raise DestinationRefused(f"a URL has at most {LONGEST_URL} characters, all of them printable")
    try:
        parts = urllib.parse.urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise DestinationRefused("this is not a URL") from None
    if parts.scheme not in DEFAULT_PORTS or not host:
        raise DestinationRefused("give a URL that begins with https:// and names a host")
    if parts.username is not None or parts.password is not None:
        raise DestinationRefused("leave user and password out of the URL: others would see them")
    if not _HOST.fullmatch(host):
        raise DestinationRefused(
            f"write the host {host} in ASCII, as xn--... if it has other letters, without a dot at its end"
        )
    port = port or DEFAULT_PORTS[parts.scheme]
    addresses = _resolved(host, port)
    for address in addresses:
        if refusal_reason(address, allowed) is not None:
            raise DestinationRefused(
                f"{host} is not a public host: an operator can allow its network by --allow-network"
            )
        if parts.scheme == "http" and not any(address in network for network in allowed):
            raise DestinationRefused(f"what is sent to {host} by plain http can be read on the way: use https://")
    return Destination(parts.scheme, host, port, addresses)


def _resolved(host: str, port: int) -> tuple[Address, ...]:
    literal = parse_address(host)
    if literal is not None:
        return (literal,)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise HostUnknown(f"the host {host} is not known{UNKNOWN_REMEDY}") from None
    addresses = [parse_address(str(entry[4][0])) for entry in found]
    known = tuple(dict.fromkeys(each for each in addresses if each is not None))
    if not known:
        raise HostUnknown(f"the host {host} has no address{UNKNOWN_REMEDY}")
    return known


def refused_host(authority: str, allowed: Sequence[Network]) -> str | None:
    """Return why the gateway of a tenant's jobs may not send secrets to `HOST` or `HOST:PORT` by https; None if it may.

    A name without an address now is accepted. Resolves the name, so it blocks.
    """
    try:
        destination_of(f"https://{authority}", allowed)
    except HostUnknown:
        return None
    except DestinationRefused as refused:
        return str(refused)
    return None


def refused_network(text: str, allowed: Sequence[Network]) -> str | None:
    """Return why a sandbox of a tenant may not reach a host, an address or a network in CIDR notation; None if it may.

    Names are not resolved: the gateway judges the addresses that it connects to.
    """
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
    ends = (network.network_address, network.broadcast_address)
    inside = any(network.version == each.version and network.subnet_of(each) for each in allowed)  # type: ignore[arg-type]
    if inside or (network.num_addresses == 1 and refusal_reason(ends[0], ()) is None):
        return None
    return f"{text}: name hosts, or one public address; a network may include addresses that are not public"
