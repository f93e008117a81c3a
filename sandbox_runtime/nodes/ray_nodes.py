"""Hosts on the nodes of a Ray cluster: actors, each with the processors and memory of its sandboxes, that start one."""

import asyncio
import logging
import math
import secrets
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

from evolverpc_common.shielded import run_shielded
from sandbox_runtime.api.sandbox import RuntimeUnavailable
from sandbox_runtime.nodes.node import HostAddress
from sandbox_runtime.nodes.ray_caller import GIVE_UP_S, ClusterRefused, ClusterUnavailable, ConnectionFailed, RayCaller

LOOK_S = 1.0
"""Seconds between two looks at the cluster."""

SMALLER_S = 30.0
"""Seconds that a host may take until it listens, with Ray's worker; then two of half its size take its place."""

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

    def __post_init__(self) -> None:
        self._caller = RayCaller(self.address, {"hosts": _hosts})
        self.state = self._cluster = f"the Ray cluster at {self.address}"

    async def joined(self) -> AsyncGenerator[HostAddress]:
        """See `Placement`. A host that is lost is started again as soon as a node has room."""
        known, warned, until = set[str](), {""}, time.monotonic() + GIVE_UP_S
        arguments = self.sandboxes, self.cpu, self.memory_mb * 2**20
        try:
            while True:
                try:
                    hosts, failure, waits = await run_shielded(self._caller.call, "hosts", *arguments)
                    until = math.inf
                    if failure not in warned:
                        _log.warning("%s", failure)
                        warned.add(failure)
                    self.state = "; ".join(filter(None, (self._cluster, waits or failure)))
                    for host in hosts:
                        if host.url not in known:
                            known.add(host.url)
                            yield host
                except ClusterRefused as error:
                    raise RuntimeUnavailable(str(error)) from None
                except ClusterUnavailable as error:
                    may_answer = self._caller.is_connecting or isinstance(error, ConnectionFailed)
                    if (until < math.inf and not may_answer) or time.monotonic() > until:
                        raise RuntimeUnavailable(f"{error}: is it running, and is its address right?") from None
                    self.state = str(error)  # what runs continues meanwhile
                await asyncio.sleep(LOOK_S)
        finally:
            await run_shielded(self._caller.close)


@dataclass(eq=False)
class _AskedHost:
    """A host that was asked for, and its actor. `listening`, `ended`: references of what these methods return."""

    room: int
    token: str
    actor: Any
    listening: Any
    ended: Any
    since: float


_asked: list[_AskedHost] = []
"""In the process that calls Ray."""


def _ask(room: int, cpu: float, memory: int) -> None:
    import ray

    token = secrets.token_urlsafe(32)
    options = {"num_cpus": room * cpu, "memory": room * memory, "max_restarts": 0, "scheduling_strategy": "SPREAD"}
    actor: Any = ray.remote(_HostActor).options(**options).remote(token)
    _asked.append(_AskedHost(room, token, actor, actor.listening.remote(), actor.ended.remote(), time.monotonic()))


def _drop(host: _AskedHost) -> None:
    import ray

    _asked.remove(host)
    ray.kill(host.actor)


def _most(sandboxes: int, cpu: float, memory: int) -> int:
    """Return for how many sandboxes a host has room at first: 0 if no node has what one sandbox needs."""
    import ray

    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    has = [node["Resources"] for node in nodes if node["Alive"]]
    fits = [int(min(each.get("CPU", 0.0) / cpu, each.get("memory", 0.0) / memory)) for each in has]
    return min(max(fits, default=0), math.ceil(sandboxes / max(1, sum(map(bool, fits)))))


def _hosts(sandboxes: int, cpu: float, memory: int) -> tuple[list[HostAddress], str, str]:
    """Have hosts started for so many sandboxes, also in place of those that were lost.

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
            failure = f"a host on a node has ended: {''.join(str(error).strip().splitlines()[-1:])}"
            if age_s > REPLACE_S:
                _drop(host)
    missing, needs = sandboxes - sum(host.room for host in _asked), f"{cpu:g} processors and {memory >> 20} MiB"
    if missing > 0 and not (most := _most(sandboxes, cpu, memory)):
        failure = f"no node of the Ray cluster has {needs} for a sandbox: it waits for one that has"
    while missing > 0:
        _ask(min(most or 1, missing), cpu, memory)
        missing -= most or 1
    waits = f"{waiting} sandboxes wait for {needs} each" if waiting else ""
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
