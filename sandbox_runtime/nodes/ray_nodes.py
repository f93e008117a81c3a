"""Hosts on the nodes of a Ray cluster: actors, each with the processors of its sandboxes, which start a host."""

import asyncio
import contextlib
import logging
import math
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from sandbox_runtime.api.sandbox import RuntimeUnavailable
from sandbox_runtime.nodes.ray_caller import ClusterRefused, ClusterUnavailable, RayCaller
from sandbox_runtime.nodes.runtime import HostAddress

LOOK_S = 1.0
"""Seconds between two looks at the cluster."""

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class RayNodes:
    """A `Placement`: hosts for `sandboxes` sandboxes of `cpu` processors each, spread over the cluster's nodes.

    One host has as many as its node could take, so that those that no node has room for wait, and Ray's autoscaler
    adds nodes for them. Hosts end with the block, or with this process. `address`: as of `RayCaller`.
    """

    address: str
    sandboxes: int
    cpu: float
    _caller: RayCaller = field(init=False)

    def __post_init__(self) -> None:
        self._caller = RayCaller(self.address, {"nodes": _nodes, "hosts": _hosts})

    async def joined(self) -> AsyncIterator[HostAddress]:
        """See `Placement`. A host whose node is lost is started again as soon as a node has room."""
        token = secrets.token_urlsafe(32)
        try:
            await asyncio.to_thread(self._caller.connect, "nodes")
            each = await self._per_host()
            known: set[str] = set()
            while True:
                with contextlib.suppress(ClusterUnavailable):  # what runs continues meanwhile
                    count = math.ceil(self.sandboxes / each)
                    hosts = await asyncio.to_thread(self._caller.call, "hosts", count, each * self.cpu, token)
                    for name, url in sorted(hosts.items()):
                        if url not in known:
                            known.add(url)
                            yield HostAddress(name, url, token)
                await asyncio.sleep(LOOK_S)
        except ClusterRefused as error:
            raise RuntimeUnavailable(str(error)) from None
        finally:
            await asyncio.to_thread(self._caller.close)

    async def _per_host(self) -> int:
        """Return how many sandboxes one host gets. Raises `RuntimeUnavailable`: the cluster does not answer."""
        try:
            nodes: list[float] = await asyncio.to_thread(self._caller.call, "nodes")
        except ClusterUnavailable as error:
            raise RuntimeUnavailable(f"{error}: is it running, and is its address right?") from None
        fair = math.ceil(self.sandboxes / max(1, len(nodes)))
        return max(1, min(fair, math.floor(max(nodes, default=1.0) / self.cpu)))


def _nodes() -> list[float]:
    """Return the processors of each node that is alive."""
    import ray

    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [float(node["Resources"].get("CPU", 0.0)) for node in nodes if node["Alive"]]


_actors: list[tuple[Any, Any]] = []
"""The actors of hosts, each with the reference of its address; in the process that calls Ray."""


def _hosts(count: int, cpus: float, token: str) -> dict[str, str]:
    """Have `count` hosts started, those that were lost again; return the URLs of those that listen, by their names."""
    import ray
    from ray.exceptions import RayActorError

    options = {"num_cpus": cpus, "max_restarts": 0, "scheduling_strategy": "SPREAD"}
    while len(_actors) < count:
        actor: Any = ray.remote(_HostActor).options(**options).remote(token)
        _actors.append((actor, actor.listening.remote()))
    found = {}
    for at, (actor, reference) in reversed(list(enumerate(_actors))):
        ready, _ = ray.wait([reference], timeout=0)
        try:
            if ready:
                node, url = ray.get(reference)
                found[f"{node}-{url.rpartition(':')[2]}"] = url
                ray.get(actor.lives.remote(), timeout=LOOK_S)
        except (RayActorError, TimeoutError):
            del _actors[at]
    return found


class _HostActor:
    """An actor that has a host. As its process ends, the stdin of the host does, and so the host."""

    def __init__(self, token: str) -> None:
        import ray

        self._address: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        command = (sys.executable, "-m", "sandbox_runtime.nodes.host", self._address)
        self._host = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603  ours
        assert self._host.stdin is not None  # noqa: S101  a pipe
        assert self._host.stdout is not None  # noqa: S101  a pipe
        self._host.stdin.write(f"{token}\n")
        self._host.stdin.flush()
        self._url = self._host.stdout.readline().strip()

    def listening(self) -> tuple[str, str]:
        """Return the address of the node, and the URL of the host."""
        return self._address, self._url

    def lives(self) -> None:
        """Do nothing: an actor that answers lives. If its host has ended, it ends too."""
        if self._host.poll() is not None:
            sys.exit()
