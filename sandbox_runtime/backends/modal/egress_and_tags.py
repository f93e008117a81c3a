"""The arguments of a new sandbox at Modal: the egress that Modal enforces, and the tags by which it is found."""

import ipaddress
import re
import secrets
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

from evolverpc_common.network_addresses import parse_address
from evolverpc_common.processes import ProcessIdentity
from sandbox_runtime.api.sandbox import RuntimeUnavailable, SandboxInfo
from sandbox_runtime.api.spec import Allow, Egress, GatewaySession, Open
from sandbox_runtime.backends.records import check_labels


def egress_rules(
    egress: Egress, gateway_session: GatewaySession | None
) -> tuple[list[str], list[str]] | tuple[None, None]:
    """Return the networks and the names of hosts that the egress allows and, if there is a session, the gateway's.

    They are arguments of `Sandbox.create`: None for both allows everything, two empty lists nothing.

    Raises:
        RuntimeUnavailable: the gateway listens on loopback only.
    """
    gateway = None if gateway_session is None else urlsplit(models_url(gateway_session)).hostname
    hosts: tuple[str, ...] = () if gateway is None else (gateway,)
    networks: tuple[str, ...] = ()
    match egress:
        case Open():
            return None, None
        case Allow():
            hosts, networks = (*egress.domains, *hosts), egress.cidrs
    addresses = [host for host in hosts if parse_address(host) is not None]
    cidrs = [str(ipaddress.ip_network(network)) for network in (*networks, *addresses)]
    return list(dict.fromkeys(cidrs)), [host for host in dict.fromkeys(hosts) if host not in addresses]


def models_url(gateway_session: GatewaySession) -> str:
    """Return the address of the gateway's models. Raises `RuntimeUnavailable` as `egress_rules`."""
    models = gateway_session.models_url
    if models is None:
        raise RuntimeUnavailable(
            "a sandbox at Modal cannot reach this machine's loopback: give the gateway an address that it can reach,"
            " as `gateway`, PORT=URL"
        )
    return models


START = "evolverpc-start"
"""`MILLISECONDS-RANDOM`, both in hex: the time, and an id that is unique among all starts."""

_OWNER = "evolverpc-owner"
"""`PID.STARTED.NAMESPACE.BOOT`: the owner's identity, within the 63 characters of a tag."""

_HOST = "evolverpc-host"
_OURS = (START, _OWNER, _HOST)
_OWNER_TEXT = re.compile(r"(\d+)\.(\d+)\.(\d+)\.([0-9a-f]{32})")


def tags_of_start(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the tags of a new sandbox with these labels, started by this process.

    Raises:
        ValueError: a label is not as `SandboxSpec.labels` requires, or has a reserved name.
    """
    check_labels(labels)
    if taken := labels.keys() & set(_OURS):
        raise ValueError(f"{', '.join(sorted(taken))} cannot be a label")
    owner = ProcessIdentity.this_process()
    namespace = re.sub(r"\D", "", owner.pid_namespace) or "0"
    return {
        **labels,
        START: f"{time.time_ns() // 1_000_000:x}-{secrets.token_hex(8)}",
        _OWNER: f"{owner.pid}.{owner.started}.{namespace}.{owner.boot_id.replace('-', '')}",
        _HOST: re.sub(r"[^A-Za-z0-9._-]", "-", owner.hostname)[:63] or "-",
    }


def found(sandbox_id: str, tags: Mapping[str, str]) -> SandboxInfo | None:
    """Return the sandbox with these tags; None if it is not one of ours."""
    try:
        created = int(tags[START].partition("-")[0], 16) / 1000
    except (KeyError, ValueError):
        return None
    owner = _owner(tags)
    return SandboxInfo(
        id=sandbox_id,
        labels={name: value for name, value in tags.items() if name not in _OURS},
        created=created,
        orphan=owner is not None and owner.is_gone(),
        owner="unknown" if owner is None else str(owner),
    )


def _owner(tags: Mapping[str, str]) -> ProcessIdentity | None:
    match = _OWNER_TEXT.fullmatch(tags.get(_OWNER, ""))
    if match is None:
        return None
    boot = match[4]
    return ProcessIdentity(
        pid=int(match[1]),
        started=int(match[2]),
        pid_namespace=f"pid:[{match[3]}]",
        boot_id=f"{boot[:8]}-{boot[8:12]}-{boot[12:16]}-{boot[16:20]}-{boot[20:]}",
        hostname=tags.get(_HOST, ""),
    )
