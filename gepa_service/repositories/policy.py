"""What the operator of a service allows about repositories."""

from dataclasses import dataclass

from evolverpc_common.network_addresses import Network


@dataclass(frozen=True)
class RepositoryPolicy:
    """Which repositories tenants may connect.

    `allow_local`: folders of this machine and `file://` too, for a service of one person. `allow_networks`: networks
    besides the public ones. `largest_mb`: MiB of a repository. `timeout_s`: seconds that a test of access may take.
    """

    allow_local: bool = False
    allow_networks: tuple[Network, ...] = ()
    largest_mb: int = 1024
    timeout_s: float = 30.0
