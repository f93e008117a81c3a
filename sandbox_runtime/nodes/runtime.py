"""A runtime whose sandboxes are on several nodes: each node has a host, and this process is the run that uses it."""

import asyncio
import contextlib
import hashlib
import itertools
import logging
import secrets
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

import aiohttp

from evolverpc_common.output_tail import OutputTail
from evolverpc_common.shielded import await_shielded
from sandbox_runtime.api.sandbox import (
    CommandResult,
    EnvironmentMissing,
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
from sandbox_runtime.nodes import messages as wire
from sandbox_runtime.nodes.splicing import Connection, WebSocketStream, splice
from sandbox_runtime.runtime import Runtime

CONNECT_S = 15.0
"""Seconds within which a host must accept the run."""

CLOSE_S = 20.0
"""Seconds within which a host must have ended its sandboxes, at the end of the run."""

FIRST_NODE_S = 300.0
"""Seconds within which the first node must join: an autoscaler may start a machine."""

NO_NODE_S = 5.0
"""Seconds after which a sandbox is asked for again if there is no node at present."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class HostAddress:
    """Where a host listens. `node`: the name of its machine, for messages."""

    node: str
    url: str
    token: str = field(repr=False)


class Placement(Protocol):
    """Starts hosts on the nodes of a cluster, and others in place of those that are lost."""

    def joined(self) -> AsyncIterator[HostAddress]:
        """Yield each host as soon as it listens. Raises `RuntimeUnavailable`: there is no cluster."""
        ...


@dataclass(eq=False)
class _SessionSockets:
    """Sockets of this machine at which a session of the gateway answers, for connections from a node."""

    session: GatewaySession
    folder: Path

    async def open(self) -> Mapping[str, str]:
        """Let the session answer there; return its variables for the usual ports of a sandbox."""
        listening = [socket.socket(socket.AF_UNIX) for _ in range(2)]
        for each, port in zip(listening, wire.PORTS, strict=True):
            each.bind(str(self.folder / port))
            each.listen()
        await self.session.serve(*listening)
        return self.session.env(*(f"http://127.0.0.1:{port}" for port in (MODELS_PORT, TUNNEL_PORT)))


class Node:
    """The connection to one host.

    `sandboxes`: how many are there, or about to be. `logs`: of those, by the names of their sessions.
    """

    def __init__(self, address: HostAddress, http: aiohttp.ClientSession, folder: Path) -> None:
        self.address = address
        self.sandboxes = 0
        self._http = http
        self._folder = folder
        self._numbers = itertools.count()
        self._calls: dict[int, tuple[asyncio.Future[wire.Answer], Callable[[str], None]]] = {}
        self._files: dict[tuple[Path, int], asyncio.Task[str]] = {}
        self._joins: set[asyncio.Task[None]] = set()
        self.logs: dict[str, OutputTail] = {}
        self._socket: aiohttp.ClientWebSocketResponse[Any] | None = None
        self.is_closed = False
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def name(self) -> str:
        """The name of its machine."""
        return self.address.node

    @property
    def is_lost(self) -> bool:
        """Whether its host answers no more."""
        return self.lost.done()

    async def follow(self, opened: "asyncio.Future[None]", kind: str, builds: Mapping[str, str] | None) -> None:
        """Connect, open its runtime, and take its messages until the connection ends. `opened`: done or failed then."""
        try:
            limit = aiohttp.ClientWSTimeout(ws_close=CLOSE_S)
            async with (
                asyncio.timeout(CONNECT_S) as connecting,
                self._http.ws_connect(
                    self._url(wire.CONTROL),
                    headers=self._headers,
                    heartbeat=wire.HEARTBEAT_S,
                    max_msg_size=wire.LARGEST,
                    timeout=limit,
                ) as self._socket,
            ):
                connecting.reschedule(None)
                opening = asyncio.create_task(self.call(wire.Open(kind, builds)))  # type: ignore[arg-type]
                opening.add_done_callback(partial(_settle, opened))
                async for message in self._socket:
                    self._take(wire.FROM_HOST.validate_json(message.data))
        except (aiohttp.ClientError, OSError) as error:
            _log.warning("the host of node %s is lost: %s", self.name, error or type(error).__name__)
        finally:
            self._end()

    async def close(self) -> None:
        """End its host, and wait until that has ended its sandboxes. Safe to call twice, and if it is lost."""
        self.is_closed = True
        if self._socket is not None:
            await self._socket.close()
            await self.lost  # `follow` waits for the host; its cancellation would not

    async def call(self, asked: wire.Asked, on_progress: Callable[[str], None] = lambda _: None) -> Any:
        """Return the result of a call. If this is cancelled, the call is, and has ended when this returns.

        Raises:
            SandboxGone: the node is lost. Others: as the call's.
        """
        if self._socket is None or self.is_lost:
            raise self._gone()
        number = next(self._numbers)
        answered: asyncio.Future[wire.Answer] = asyncio.get_running_loop().create_future()
        self._calls[number] = answered, on_progress
        method = type(asked).__name__
        params = wire.ASKED[method].dump_json(asked).decode()
        try:
            await self._send(wire.Call(number, method, params))
            answer = await asyncio.shield(answered)
        except asyncio.CancelledError:
            await await_shielded(self._cancelled(number, answered))
            raise
        finally:
            self._calls.pop(number, None)
        if answer.failure is not None:
            raise wire.error_of(answer.failure)
        return wire.RESULTS[type(asked)].validate_json(answer.result)

    async def sent(self, command: Command) -> wire.SentCommand:
        """Return a command as it is sent, once the host has the file of its input. Raises `OSError`, `SandboxGone`."""
        made = partial(wire.SentCommand, command.argv, command.cwd, command.timeout_s, command.env)
        if isinstance(command.stdin, bytes):
            return made(command.stdin)
        key = command.stdin, command.stdin.stat().st_mtime_ns
        if key not in self._files:
            self._files[key] = asyncio.create_task(self._uploaded(command.stdin))
        try:
            return made(file=await asyncio.shield(self._files[key]))
        except (SandboxError, OSError):
            self._files.pop(key, None)
            raise

    async def _uploaded(self, file: Path) -> str:
        with await asyncio.to_thread(file.open, "rb") as content:
            digest = (await asyncio.to_thread(hashlib.file_digest, content, "sha256")).hexdigest()
            content.seek(0)
            try:
                put = self._http.put(self._url(f"{wire.FILES}/{digest}"), data=content, headers=self._headers)
                async with put as answer:
                    answer.raise_for_status()
            except aiohttp.ClientError as error:
                raise SandboxGone(f"node {self.name} did not take a file: {error}") from error
        return digest

    def _take(self, message: wire.FromHost) -> None:
        match message:
            case wire.Answer(number) if number in self._calls and not self._calls[number][0].done():
                self._calls[number][0].set_result(message)
            case wire.Progress(number, text) if number in self._calls:
                self._calls[number][1](f"{self.name}: {text}")
            case wire.Printed(session, data) if session in self.logs:
                self.logs[session].add(data)
            case wire.Connect():
                joining = asyncio.create_task(self._join(message))
                self._joins.add(joining)
                joining.add_done_callback(self._joins.discard)

    async def _join(self, asked: wire.Connect) -> None:
        """Connect to the gateway for a program on the node."""
        try:
            stream = await self._http.ws_connect(self._url(f"{wire.STREAMS}/{asked.stream}"), headers=self._headers)
        except (aiohttp.ClientError, OSError) as error:
            _log.warning("a connection of node %s to the gateway was lost: %s", self.name, error)
            return
        try:
            gateway = await asyncio.open_unix_connection(self._folder / asked.session / asked.port)
        except OSError:  # the session is closed
            await stream.close()
            return
        await splice(WebSocketStream(stream), Connection(*gateway))

    async def _cancelled(self, number: int, answered: "asyncio.Future[wire.Answer]") -> None:
        with contextlib.suppress(SandboxGone):
            await self._send(wire.Cancel(number))
            await answered

    async def _send(self, message: wire.Call | wire.Cancel) -> None:
        assert self._socket is not None  # noqa: S101  it is connected
        try:
            await self._socket.send_bytes(wire.FROM_RUN.dump_json(message))
        except OSError as error:
            raise SandboxGone(f"node {self.name} is lost: {error}") from error

    def _end(self) -> None:
        if not self.lost.done():
            self.lost.set_result(None)
        for answered, _ in self._calls.values():
            if not answered.done():
                answered.set_exception(self._gone())
        for joining in self._joins:
            joining.cancel()

    def _gone(self) -> SandboxGone:
        return SandboxGone(f"node {self.name} {'has ended' if self.is_closed else 'is lost'}")

    def _url(self, path: str) -> str:
        return self.address.url + path

    @property
    def _headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.address.token}"}


def _settle(opened: "asyncio.Future[None]", opening: "asyncio.Task[Any]") -> None:
    if opened.done():
        return
    if opening.cancelled() or (error := opening.exception()) is None:
        opened.set_result(None)
    else:
        opened.set_exception(error)


@dataclass(eq=False)
class NodeSandbox:
    """A `StartedSandbox` on a node."""

    node: Node
    session: str
    begun: wire.Begun

    @property
    def id(self) -> str:
        """The name of its node and that of its backend there."""
        return f"{self.node.name}.{self.begun.id}"

    async def run(self, command: Command, stdout: OutputTail, stderr: OutputTail | None = None) -> int | None:
        """See `StartedSandbox.run`; the output comes at the end."""
        limits = (stdout.limit,) if stderr is None else (stdout.limit, stderr.limit)
        done: CommandResult = await self.node.call(wire.Run(self.begun.id, await self.node.sent(command), limits))
        stdout.add(done.stdout)
        if stderr is not None:
            stderr.add(done.stderr)
        return done.status

    async def serve(self, main: Command, endpoint: ServerEndpoint) -> SandboxExit:
        """See `StartedSandbox.serve`."""
        try:
            ended: SandboxExit = await self.node.call(
                wire.Serve(self.begun.id, await self.node.sent(main), endpoint.token)
            )
        except SandboxGone as error:
            return SandboxExit("lost" if self.node.is_lost else "terminated", detail=str(error))
        return ended

    async def endpoint(self, token: str) -> ServerEndpoint:
        """Return the address of its server: a port of its node."""
        if self.node.is_lost:
            raise SandboxGone(f"sandbox {self.id} has ended with its node")
        return ServerEndpoint(f"http://{urlsplit(self.node.address.url).hostname}:{self.begun.port}", token)


class NodesRuntime(Runtime):
    """See `Runtime`. Sandboxes are made on the nodes that `placement` has, by the backend `kind` there.

    An environment is made on one node, with few sandboxes, and its sandbox starts there: prepare one for each sandbox.
    `build_gateway_session`: what a build may reach, by default nothing.
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
        self._at: dict[str, NodeSandbox] = {}
        self._following: set[asyncio.Task[None]] = set()

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes that are here."""
        return [name for name, node in self._nodes.items() if not node.is_lost]

    async def open(self) -> None:
        """Wait for the first node. Raises `RuntimeUnavailable`: there is no cluster, or no node has joined in time."""
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="evolverpc-nodes-")))
        self._http = await self._stack.enter_async_context(aiohttp.ClientSession())
        self._builds = (
            None if self._build_session is None else await self._answered_here(wire.BUILDS, self._build_session)
        )
        first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._spawn(self._follow(first))
        try:
            async with asyncio.timeout(FIRST_NODE_S):
                await first
        except TimeoutError:
            await self._close()
            raise RuntimeUnavailable(f"no node of the cluster could take a sandbox within {FIRST_NODE_S:g} s") from None
        except BaseException:
            await self._close()
            raise

    async def __aexit__(self, *error: object) -> None:
        try:
            await super().__aexit__(*error)
        finally:
            await self._close()

    async def prepare(
        self, recipe: Recipe, *, on_progress: Callable[[str], None], rebuild: bool = False
    ) -> PreparedEnvironment:
        node = self._freest()
        checkout = tuple([await node.sent(command) for command in recipe.checkout])
        asked = wire.Prepare(replace(recipe, checkout=()), checkout, rebuild)
        prepared: PreparedEnvironment = await node.call(asked, on_progress)
        return replace(prepared, image=f"{node.name} {prepared.image or ''}")

    async def begin(self, spec: SandboxSpec, log: OutputTail) -> NodeSandbox:
        name, _, image = (spec.prepared.image or "").partition(" ")
        node = self._nodes.get(name)
        if node is None or node.is_lost:
            raise EnvironmentMissing(f"node {name} is lost: prepare the environment again")
        options = SandboxOptions(**{option.name: getattr(spec, option.name) for option in fields(SandboxOptions)})
        session = secrets.token_hex(8)
        node.sandboxes += 1
        node.logs[session] = log
        try:
            gateway = None if spec.gateway_session is None else await self._answered_here(session, spec.gateway_session)
            prepared = replace(spec.prepared, image=image or None, recipe=replace(spec.prepared.recipe, checkout=()))
            hosts, main = wire.hosts_of(spec.egress), await node.sent(spec.main)
            asked = wire.Begin(options, hosts, main, prepared, session, gateway)
            started = NodeSandbox(node, session, await node.call(asked))
        except BaseException:
            node.sandboxes -= 1
            del node.logs[session]
            raise
        self._at[started.id] = started
        return started

    async def stop(self, id_: str) -> None:
        name, _, own = id_.rpartition(".")
        node = self._nodes.get(name)
        if node is not None and not node.is_lost:  # else its host has ended all of them
            with contextlib.suppress(SandboxGone):
                await await_shielded(node.call(wire.Stop(own)))
        started = self._at.pop(id_, None)
        if started is not None:
            started.node.sandboxes -= 1
            del started.node.logs[started.session]

    async def found(self, labels: Mapping[str, str] | None = None) -> Sequence[SandboxInfo]:
        """See `Runtime.found`; those of the nodes that are here."""
        there = [node for node in self._nodes.values() if not node.is_lost]
        listed = await asyncio.gather(*(node.call(wire.Found(labels or {})) for node in there))
        pairs = zip(there, listed, strict=True)
        return [replace(each, id=f"{node.name}.{each.id}") for node, found in pairs for each in found]

    def _freest(self) -> Node:
        """Return the node with the fewest sandboxes. Raises `RuntimeThrottled`: all are lost."""
        there = [node for node in self._nodes.values() if not node.is_lost]
        if not there:
            raise RuntimeThrottled("no node of the cluster is left", retry_after_s=NO_NODE_S)
        return min(there, key=lambda node: (node.sandboxes, node.name))

    async def _answered_here(self, name: str, session: GatewaySession) -> Mapping[str, str]:
        folder = self._folder / name
        folder.mkdir()
        return await _SessionSockets(session, folder).open()

    async def _follow(self, first: "asyncio.Future[None]") -> None:
        """Connect to each host that joins."""
        try:
            async for address in self._placement.joined():
                node = Node(address, self._http, self._folder)
                opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._spawn(node.follow(opened, self._kind, self._builds))
                try:
                    await opened
                except (SandboxError, OSError) as error:
                    _log.warning("node %s takes no sandboxes: %s", address.node, error)
                    if not first.done():
                        first.set_exception(error)
                    continue
                self._nodes[address.node] = node
                if not first.done():
                    first.set_result(None)
        except (SandboxError, OSError) as error:
            if first.done():
                _log.warning("no further node joins: %s", error)
            else:
                first.set_exception(error)

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._following.add(task)
        task.add_done_callback(self._following.discard)

    async def _close(self) -> None:
        await asyncio.gather(*(node.close() for node in self._nodes.values()))
        for task in tuple(self._following):
            task.cancel()
        await asyncio.gather(*self._following, return_exceptions=True)
        await self._stack.aclose()
