"""Hosts on the nodes of a Ray cluster: actors, each with the processors and memory of its sandboxes, that start one."""

import asyncio
import logging
import math
import secrets
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

from evolverpc_common.shielded import run_shielded
from sandbox_runtime.api.sandbox import RuntimeUnavailable
from sandbox_runtime.nodes.node import HostAddress
from sandbox_runtime.nodes.ray_caller import GIVE_UP_S, ClusterRefused, ClusterUnavailable, RayCaller

LOOK_S = 1.0
"""Seconds between two looks at the cluster."""

SMALLER_S = 15.0
"""Seconds that a host waits for its processors; then two of half its size wait in its place."""

REPLACE_S = 10.0
"""Seconds from the start of a host until it may be replaced, so that one that fails at once is not always started."""

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class RayNodes:
    """A `Placement`: hosts for `sandboxes` sandboxes of `cpu` processors and `memory_mb` MiB, spread over the nodes.

    A host takes what it needs for its sandboxes from its node, and begins with as many as a node could take. Those that
    no node has room for wait, and Ray's autoscaler adds nodes for them. Hosts end with the iteration, or with this
    process. `address`: as of `RayCaller`.
    """

    address: str
    sandboxes: int
    cpu: float
    memory_mb: int
    state: str = field(default="", init=False)
    _caller: RayCaller = field(init=False)

    def __post_init__(self) -> None:
        self._caller = RayCaller(self.address, {"nodes": _nodes, "hosts": _hosts})
        self.state = f"the Ray cluster at {self.address}"

    async def joined(self) -> AsyncGenerator[HostAddress]:
        """See `Placement`. A host that is lost is started again as soon as a node has room."""
        try:
            most = self._room(await self._first_answer())
            known, failed = set[str](), ""
            while True:
                try:
                    arguments = self.sandboxes, most, self.cpu, self.memory_mb * 2**20
                    hosts, failure, waits = await run_shielded(self._caller.call, "hosts", *arguments)
                    if failure not in ("", failed):
                        _log.warning("%s", failure)
                        failed = failure
                    what = "; ".join(filter(None, (failed, waits)))
                    self.state = f"the Ray cluster at {self.address}{what and ': '}{what}"
                    for host in hosts:
                        if host.url not in known:
                            known.add(host.url)
                            yield host
                except ClusterUnavailable as error:  # what runs continues meanwhile
                    if isinstance(error, ClusterRefused):
                        raise RuntimeUnavailable(str(error)) from None
                    self.state = str(error)
                await asyncio.sleep(LOOK_S)
        finally:
            await run_shielded(self._caller.close)

    async def _first_answer(self) -> list[tuple[float, float]]:
        """Return what `_nodes` does. Raises `RuntimeUnavailable`: the cluster does not answer, or cannot be used."""
        until = time.monotonic() + GIVE_UP_S
        while True:
            try:
                nodes: list[tuple[float, float]] = await run_shielded(self._caller.call, "nodes")
            except ClusterRefused as error:
                raise RuntimeUnavailable(str(error)) from None
            except ClusterUnavailable as error:
                if not self._caller.is_connecting or time.monotonic() > until:
                    raise RuntimeUnavailable(f"{error}: is it running, and is its address right?") from None
            else:
                return nodes

    def _room(self, nodes: list[tuple[float, float]]) -> int:
        """Return for how many sandboxes a host is to have room at first."""
        memory = self.memory_mb * 2**20
        fits = [each for cpus, bytes_ in nodes if (each := min(int(cpus / self.cpu), int(bytes_ / memory)))]
        if not fits:
            needed = f"{self.cpu:g} processors and {self.memory_mb} MiB of memory"
            _log.warning("no node of the Ray cluster has %s for a sandbox: it waits for one that has", needed)
        return min(math.ceil(self.sandboxes / max(1, len(fits))), max(fits, default=1))


def _nodes() -> list[tuple[float, float]]:
    """Return the processors and the bytes of memory of each node that is alive."""
    import ray

    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    has = [node["Resources"] for node in nodes if node["Alive"]]
    return [(float(each.get("CPU", 0.0)), float(each.get("memory", 0.0))) for each in has]


@dataclass(eq=False)
class _AskedHost:
    """A host that was asked for, and its actor. `listening`, `ended`: references of what these methods return."""

    room: int
    token: str
    actor: Any
    listening: Any
    ended: Any
    since: float = field(default_factory=time.monotonic)


_asked: list[_AskedHost] = []
"""In the process that calls Ray."""


def _ask(room: int, cpu: float, memory: int) -> None:
    import ray

    token = secrets.token_urlsafe(32)
    options = {"num_cpus": room * cpu, "memory": room * memory, "max_restarts": 0, "scheduling_strategy": "SPREAD"}
    actor: Any = ray.remote(_HostActor).options(**options).remote(token)
    _asked.append(_AskedHost(room, token, actor, actor.listening.remote(), actor.ended.remote()))


def _drop(host: _AskedHost) -> None:
    import ray

    _asked.remove(host)
    ray.kill(host.actor)


def _hosts(sandboxes: int, most: int, cpu: float, memory: int) -> tuple[list[HostAddress], str, str]:
    """Have hosts started for so many sandboxes, `most` on each, those that were lost again.

    Return those that listen, why others have ended, and what the others wait for.
    """
    import ray
    from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayError

    references = [each for host in _asked for each in (host.listening, host.ended)]
    done = set(ray.wait(references, num_returns=len(references), timeout=0)[0]) if references else set()
    found, waiting, failure = list[HostAddress](), 0, ""
    for host in tuple(_asked):
        age_s = time.monotonic() - host.since
        try:
            if host.ended in done:
                ray.get(host.ended, timeout=LOOK_S)
                if age_s > REPLACE_S:
                    _drop(host)
            elif host.listening in done:
                address, url = ray.get(host.listening, timeout=LOOK_S)
                found.append(HostAddress(f"{address}-{url.rpartition(':')[2]}", url, host.room, host.token))
            elif age_s > SMALLER_S and host.room > 1:
                _drop(host)
                for room in (host.room // 2, host.room - host.room // 2):
                    _ask(room, cpu, memory)
            else:
                waiting += host.room
        except GetTimeoutError:  # a slow node: look again
            continue
        except ActorUnavailableError:  # perhaps for now
            host.ended = host.actor.ended.remote()
        except RayError as error:  # it has ended, or cannot be made
            failure = f"a host on a node has ended: {str(error).strip().splitlines()[-1]}"
            if age_s > REPLACE_S:
                _drop(host)
    missing = sandboxes - sum(host.room for host in _asked)
    while missing > 0:
        _ask(min(most, missing), cpu, memory)
        missing -= most
    waits = f"{waiting} sandboxes wait for {cpu:g} processors and {memory >> 20} MiB of memory each" if waiting else ""
    return found, failure, waits


class _HostActor:
    """An actor that has a host. As its process ends, the stdin of the host does, and so the host."""

    def __init__(self, token: str) -> None:
        import ray

        self._address: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        command = (sys.executable, "-m", "sandbox_runtime.nodes.host", self._address)
        self._host = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603  ours
        assert self._host.stdin is not None  # noqa: S101  a pipe
        self._host.stdin.write(f"{token}\n")
        self._host.stdin.flush()

    def listening(self) -> tuple[str, str]:
        """Return the address of the node, and the URL of the host once it listens. Raises `RuntimeError`: it ends."""
        assert self._host.stdout is not None  # noqa: S101  a pipe
        url = self._host.stdout.readline().strip()
        if not url:
            raise RuntimeError(f"the host of node {self._address} cannot be started: see the log of its actor")
        return self._address, url

    def ended(self) -> None:
        """Return once the host has ended."""
        self._host.wait()
