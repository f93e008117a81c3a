"""A runtime whose sandboxes are on several nodes: each node has a host, and this process is the run that uses it."""

import asyncio
import contextlib
import logging
import re
import secrets
import shutil
import socket
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal, Protocol
from urllib.parse import urlsplit

import aiohttp

from evolverpc_common.network_addresses import url_host
from evolverpc_common.output_tail import OutputTail
from evolverpc_common.shielded import await_shielded
from sandbox_runtime.api.sandbox import (
    CommandResult,
    RuntimeThrottled,
    RuntimeUnavailable,
    SandboxError,
    SandboxExit,
    SandboxGone,
    SandboxInfo,
    ServerEndpoint,
)
from sandbox_runtime.api.spec import (
    MODELS_PORT,
    TUNNEL_PORT,
    Command,
    GatewaySession,
    PreparedEnvironment,
    Recipe,
    SandboxOptions,
    SandboxSpec,
)
from sandbox_runtime.backends.records import owned_folders, socket_path
from sandbox_runtime.nodes import messages as wire
from sandbox_runtime.nodes.node import AGAIN_S, CONNECT_S, HostAddress, Node, NodeLost
from sandbox_runtime.runtime import Runtime, end_after_failure

NODE_S = 300.0
"""Seconds that a run waits while it has no node: an autoscaler may start a machine."""

OTHERS_S = 20.0
"""Seconds that a run waits for other nodes if it has none and one cannot start sandboxes."""

HELD_S = 2.0
"""Seconds after `prepare` that the room for its sandbox is held."""

STOP_S = 60.0
"""Seconds within which a host must have ended a sandbox, or listed its sandboxes."""

ENDED = "the runtime has ended: no sandbox starts"

_log = logging.getLogger(__name__)


class Placement(Protocol):
    """Starts hosts on the nodes of a cluster, and others in place of those that are lost."""

    @property
    def state(self) -> str:
        """The name of the cluster, and what its hosts wait for, for messages."""
        ...

    def joined(self) -> AsyncGenerator[HostAddress]:
        """Yield each host as soon as it listens. Raises `RuntimeUnavailable`: there is no cluster."""
        ...


@dataclass(eq=False)
class NodeSandbox:
    """A `StartedSandbox` on a node. `port`: of the node, for its server."""

    node: Node
    session: str
    port: int

    @property
    def id(self) -> str:
        """The names of its node and of its session there."""
        return f"{self.node.name}.{self.session}"

    async def run(self, command: Command, stdout: OutputTail, stderr: OutputTail | None = None) -> int | None:
        """See `StartedSandbox.run`; the output comes at the end."""
        limits = (stdout.limit,) if stderr is None else (stdout.limit, stderr.limit)
        done: CommandResult = await self.node.call(wire.Run(self.session, await self.node.sent(command), limits))
        stdout.add(done.stdout)
        if stderr is not None:
            stderr.add(done.stderr)
        return done.status

    async def serve(self, main: Command, endpoint: ServerEndpoint) -> SandboxExit:
        """See `StartedSandbox.serve`. Raises `NodeLost` too: so a start is repeated that has lost its node."""
        asked = wire.Serve(self.session, await self.node.sent(main), endpoint.token)
        try:
            ended: SandboxExit = await self.node.call(asked)
        except NodeLost:
            raise
        except SandboxGone as error:
            return SandboxExit("terminated", detail=str(error))
        return ended

    async def endpoint(self, token: str) -> ServerEndpoint:
        """Return the address of its server: a port of its node."""
        if self.node.is_lost:
            raise NodeLost(self.node.name)
        host = url_host(urlsplit(self.node.address.url).hostname or "")
        return ServerEndpoint(f"http://{host}:{self.port}", token)


class NodesRuntime(Runtime):
    """See `Runtime`. Sandboxes are made on the nodes that `placement` has, by the backend `kind` there.

    `prepare` waits for a node with room, makes the environment there and holds the room for its sandbox for a moment:
    prepare one for each sandbox. `build_gateway_session`: what a build may reach, by default nothing.
    """

    name = "nodes"

    def __init__(
        self,
        kind: Literal["process", "bubblewrap", "docker"],
        placement: Placement,
        *,
        build_gateway_session: GatewaySession | None = None,
    ) -> None:
        super().__init__()
        self._kind = kind
        self._placement = placement
        self._build_session = build_gateway_session
        self._stack = contextlib.AsyncExitStack()
        self._nodes: dict[str, Node] = {}
        self._using = list[asyncio.Task[None]]()
        self._changed = asyncio.Event()
        self._until = 0.0
        """Until when there must be a node, by the clock of the event loop."""
        self._failure, self._warned, self._is_over = "", set[str](), False

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes that are here."""
        return [name for name, node in self._nodes.items() if not node.is_lost]

    async def open(self) -> None:
        """Wait for the first node. Raises `RuntimeUnavailable`: there is no cluster, or no node can be used in time."""
        async with contextlib.AsyncExitStack() as opening:
            self._folder = opening.enter_context(owned_folders("runs")).sockets
            limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
            connector = aiohttp.TCPConnector(limit=0)
            self._http = await opening.enter_async_context(aiohttp.ClientSession(connector=connector, timeout=limits))
            session = self._build_session
            self._builds = None if session is None else await self._answered_here(wire.BUILDS, session)
            self._until = asyncio.get_running_loop().time() + NODE_S
            self._following = asyncio.create_task(self._follow())
            self._following.add_done_callback(lambda _: self._notify())
            opening.push_async_callback(self._unfollow)
            await self._with_room()
            self._stack = opening.pop_all()

    async def __aexit__(self, *error: object) -> None:
        try:
            await super().__aexit__(*error)
        finally:
            await await_shielded(self._stack.aclose())

    async def prepare(
        self, recipe: Recipe, *, on_progress: Callable[[str], None], rebuild: bool = False
    ) -> PreparedEnvironment:
        while True:
            node, session = await self._with_room(on_progress), secrets.token_hex(6)
            node.places[session] = None
            try:
                checkout = tuple([await node.sent(command) for command in recipe.checkout])
                asked = wire.Prepare(replace(recipe, checkout=()), checkout, rebuild)
                made: PreparedEnvironment = await node.call(asked, lambda text: on_progress(f"{node.name}: {text}"))  # noqa: B023  called now
            except NodeLost:
                continue
            except BaseException:
                self._free(node, session)
                raise
            asyncio.get_running_loop().call_later(HELD_S, self._unhold, node, session)
            return replace(made, image=f"{node.name} {session} {made.image or ''}")

    async def begin(self, spec: SandboxSpec, log: OutputTail) -> NodeSandbox:
        name, session, image = (spec.prepared.image or "  ").split(" ", 2)
        node = self._nodes.get(name)
        if node is None or node.is_lost:
            raise NodeLost(name)
        if node.places.get(session, log) is not None:  # its room is used, or was not held for longer
            if node.room < 1:
                raise RuntimeThrottled(f"node {name} has no room for a sandbox", retry_after_s=AGAIN_S)
            session = secrets.token_hex(6)
        node.places[session] = log
        options = SandboxOptions(**{option.name: getattr(spec, option.name) for option in fields(SandboxOptions)})
        try:
            gateway = None if spec.gateway_session is None else await self._answered_here(session, spec.gateway_session)
            prepared = replace(spec.prepared, image=image or None, recipe=replace(spec.prepared.recipe, checkout=()))
            hosts, main = wire.hosts_of(spec.egress), await node.sent(spec.main)
            port = await node.call(wire.Begin(options, hosts, main, prepared, session, gateway))
        except BaseException as error:  # a cancellation may have come while the answer was on its way
            await end_after_failure(self.stop(f"{name}.{session}"))
            if self._is_over and isinstance(error, NodeLost):
                raise RuntimeUnavailable(ENDED) from error
            raise
        return NodeSandbox(node, session, port)

    async def stop(self, id_: str) -> None:
        name, _, session = id_.rpartition(".")
        node = self._nodes.get(name)
        if node is None:  # its host has ended all of them
            return
        with contextlib.suppress(NodeLost):
            await await_shielded(node.call(wire.Stop(session), within_s=STOP_S))
        self._free(node, session)

    async def found(self, labels: Mapping[str, str] | None = None) -> Sequence[SandboxInfo]:
        """See `Runtime.found`; those of the nodes that are here."""

        async def of(node: Node) -> list[SandboxInfo]:
            try:
                listed: list[SandboxInfo] = await node.call(wire.Found(labels or {}), within_s=STOP_S)
            except NodeLost:
                return []
            return [replace(each, id=f"{node.name}.{each.id}") for each in listed]

        return [each for listed in await asyncio.gather(*map(of, self._nodes.values())) for each in listed]

    # --- nodes -------------------------------------------------------------------------------------------------------

    async def _with_room(self, on_progress: Callable[[str], None] | None = None) -> Node:
        """Return the node that has the most room, as soon as one has any; report once that this waits.

        Raises:
            RuntimeUnavailable: there is no node at all, and was none for too long; the text has why.
        """
        while True:
            here = [node for node in self._nodes.values() if not node.is_lost]
            if free := [node for node in here if node.room > 0]:
                return max(free, key=lambda node: node.room)
            if self._is_over:
                raise RuntimeUnavailable(ENDED)
            if self._following.done():  # no node is left, and none will join
                self._following.result()
                self._until = 0.0
            left_s = None if here else self._until - asyncio.get_running_loop().time()
            if left_s is not None and left_s <= 0:
                why, state = self._failure or f"none has joined within {NODE_S:g} s", self._placement.state
                where = "" if state in why else f" ({state})"
                raise RuntimeUnavailable(f"no node can start sandboxes: {why}{where}")
            if on_progress is not None:
                on_progress(f"waiting for a node with room: {self._placement.state}")
                on_progress = None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _free(self, node: Node, session: str) -> None:
        if session in node.places:
            del node.places[session]
            shutil.rmtree(self._folder / session, ignore_errors=True)
            self._notify()

    def _unhold(self, node: Node, session: str) -> None:
        if node.places.get(session, node) is None:
            self._free(node, session)

    async def _follow(self) -> None:
        """Use each host that joins, until it is lost."""
        async with asyncio.TaskGroup() as used:
            try:
                async with contextlib.aclosing(self._placement.joined()) as joined:
                    async for address in joined:
                        self._using.append(used.create_task(self._use(address)))
            except (SandboxError, OSError) as error:
                self._failed(str(error), 0.0)

    async def _use(self, address: HostAddress) -> None:
        """Open a node, keep it among those that are used until it is lost, and close it."""
        if self._is_over:
            return
        node = Node(address, self._http, self._folder)
        try:
            await node.open(self._kind, self._builds)
            self._nodes[node.name] = node
            self._notify()
            why = await node.lost()
            self._until = asyncio.get_running_loop().time() + NODE_S
            self._failed(f"node {node.name} is lost: {why}", NODE_S)
        except SandboxError as error:
            self._failed(str(error), OTHERS_S)
        finally:
            self._nodes.pop(node.name, None)
            for session in tuple(node.places):
                self._free(node, session)
            self._notify()
            await await_shielded(node.close())

    def _failed(self, why: str, wait_s: float) -> None:
        """Warn of a failure, once of each; if there is no node, wait so long for another one."""
        kind = re.sub(r"[:-]\d{4,5}\b", "", why)  # without the port: a host that is started again has another one
        if kind not in self._warned and not self._is_over:
            self._warned.add(kind)
            _log.warning("%s", why)
        self._failure = why
        self._until = min(self._until, asyncio.get_running_loop().time() + wait_s)
        self._notify()

    async def _unfollow(self) -> None:
        self._is_over = True
        for using in self._using:  # each closes its node, before the placement ends the hosts
            using.cancel()
        await asyncio.gather(*self._using, return_exceptions=True)
        self._following.cancel()
        await asyncio.wait([self._following])

    async def _answered_here(self, name: str, session: GatewaySession) -> Mapping[str, str]:
        """Let a session of the gateway answer on sockets for connections from a node.

        Return its variables for the usual ports of a sandbox. Raises `OSError`.
        """
        paths = [socket_path(self._folder / name, port) for port in wire.PORTS]
        (self._folder / name).mkdir()
        with contextlib.ExitStack() as opened:
            made = (socket.create_server(str(path), family=socket.AF_UNIX) for path in paths)
            listening = list(map(opened.enter_context, made))
            opened.pop_all()
        await session.serve(*listening)
        return session.env(*(f"http://127.0.0.1:{port}" for port in (MODELS_PORT, TUNNEL_PORT)))
