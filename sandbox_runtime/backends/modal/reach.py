"""What a sandbox at Modal may reach, as Modal is told it: lists of networks and domains, which it enforces itself."""

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from sandbox_runtime.api.egress import Allow, Closed, Egress, Open
from sandbox_runtime.api.gateway_session import Passage
from sandbox_runtime.api.sandbox import Unavailable

_NONE: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reach:
    """As `Sandbox.create` takes them; None, for both, is everything. Two empty lists are nothing at all."""

    cidrs: list[str] | None
    domains: list[str] | None


def reach(egress: Egress, way_out: Passage | None) -> Reach:
    """The hosts of the egress and, if there is a way out, that of the gateway.

    Raises:
        Unavailable: the gateway can be reached on loopback alone.
    """
    gateway = _hosts(way_out)
    match egress:
        case Open():
            return Reach(None, None)
        case Closed():
            hosts, cidrs = gateway, _NONE
        case Allow():
            hosts, cidrs = (*egress.domains, *gateway), egress.cidrs
    addresses = [host for host in hosts if _is_address(host)]
    networks = [str(ipaddress.ip_network(network)) for network in (*cidrs, *addresses)]
    return Reach(_once(networks), _once([host for host in hosts if not _is_address(host)]))


def gateway_urls(way_out: Passage) -> tuple[str, str]:
    """Where programs find its models and its proxy. Raises `Unavailable` as `reach`."""
    models, tunnel = way_out.models_url, way_out.tunnel_url
    if models is None or tunnel is None:
        raise Unavailable(
            "a sandbox at Modal cannot reach this machine's loopback: give the gateway an address that it can reach,"
            " with --gateway-port and --gateway-url"
        )
    return models, tunnel


def _hosts(way_out: Passage | None) -> tuple[str, ...]:
    if way_out is None:
        return ()
    return tuple(host for url in gateway_urls(way_out) if (host := urlsplit(url).hostname))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _once(items: list[str]) -> list[str]:
    return list(dict.fromkeys(items))
