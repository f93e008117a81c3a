"""Translate egress into Modal's lists of networks and domains, which Modal enforces."""

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from sandbox_runtime.api.egress import Allow, Closed, Egress, GatewaySession, Open
from sandbox_runtime.api.sandbox import RuntimeUnavailable

_NONE: tuple[str, ...] = ()


@dataclass(frozen=True)
class EgressRules:
    """Arguments of `Sandbox.create`. None for both allows everything; two empty lists allow nothing."""

    cidrs: list[str] | None
    domains: list[str] | None


def egress_rules(egress: Egress, gateway_session: GatewaySession | None) -> EgressRules:
    """Return the hosts of the egress and, if there is a session, the gateway's.

    Raises:
        RuntimeUnavailable: the gateway listens on loopback only.
    """
    gateway = _hosts(gateway_session)
    match egress:
        case Open():
            return EgressRules(None, None)
        case Closed():
            hosts, cidrs = gateway, _NONE
        case Allow():
            hosts, cidrs = (*egress.domains, *gateway), egress.cidrs
    addresses = [host for host in hosts if _is_address(host)]
    networks = [str(ipaddress.ip_network(network)) for network in (*cidrs, *addresses)]
    return EgressRules(_once(networks), _once([host for host in hosts if not _is_address(host)]))


def gateway_urls(gateway_session: GatewaySession) -> tuple[str, str]:
    """Return the addresses of the gateway's models and proxy. Raises `RuntimeUnavailable` as `egress_rules`."""
    models, tunnel = gateway_session.models_url, gateway_session.tunnel_url
    if models is None or tunnel is None:
        raise RuntimeUnavailable(
            "a sandbox at Modal cannot reach this machine's loopback: give the gateway an address that it can reach,"
            " with --gateway-port and --gateway-url"
        )
    return models, tunnel


def _hosts(gateway_session: GatewaySession | None) -> tuple[str, ...]:
    if gateway_session is None:
        return ()
    return tuple(host for url in gateway_urls(gateway_session) if (host := urlsplit(url).hostname))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _once(items: list[str]) -> list[str]:
    return list(dict.fromkeys(items))
