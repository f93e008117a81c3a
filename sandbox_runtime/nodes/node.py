"""The connection of a run to the host of one node: calls, files, and the connections of programs to the gateway."""

import asyncio
import contextlib
import hashlib
import itertools
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import aiohttp

from evolverpc_common.installation import installed_version
from evolverpc_common.output_tail import OutputTail
from evolverpc_common.shielded import await_shielded, finished_before
from sandbox_runtime.api.sandbox import RuntimeThrottled, RuntimeUnavailable, SandboxError, SandboxGone
from sandbox_runtime.api.spec import Command
from sandbox_runtime.nodes import messages as wire
from sandbox_runtime.nodes.splicing import close, splice

CONNECT_S, OPEN_S, CANCEL_S, CLOSE_S = 15.0, 120.0, 60.0, 30.0
"""Seconds within which a host must accept a connection; have opened its runtime, and ended what a killed host left;
have ended a call that was cancelled; and have ended all its sandboxes."""

AGAIN_S = 1.0
"""Seconds after which a start that has lost its node is tried again."""

_log = logging.getLogger(__name__)


class NodeLost(RuntimeThrottled, SandboxGone):
    """The node of a sandbox is lost, and the sandbox with it; the next start is on another node."""

    def __init__(self, node: str) -> None:
        super().__init__(f"node {node} is lost", retry_after_s=AGAIN_S)


@dataclass(frozen=True)
class HostAddress:
    """Where a host listens. `node`: its name, for messages. `room`: for how many sandboxes its node has room."""

    node: str
    url: str
    room: int
    token: str = field(repr=False)


class Node:
    """A host, from `open` to `close`. `folder`: has the sockets of the gateway's sessions, in folders of their names.

    `places`: the log of each sandbox by session; None while its room is only held.
    """

    def __init__(self, address: HostAddress, http: aiohttp.ClientSession, folder: Path) -> None:
        self.name = address.node
        self.address = address
        self.places: dict[str, OutputTail | None] = {}
        self._http = http
        self._folder = folder
        self._headers = {"Authorization": f"Bearer {address.token}"}
        self._numbers = itertools.count()
        self._calls: dict[int, tuple[asyncio.Future[wire.Answer], Callable[[str], None]]] = {}
        self._files: dict[tuple[Path, int], str] = {}
        self._sending = asyncio.Lock()
        self._joins: set[asyncio.Task[None]] = set()
        self._socket: aiohttp.ClientWebSocketResponse[Any] | None = None
        self._reading: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._reading.set_result("it was never reached")

    @property
    def is_lost(self) -> bool:
        """Whether its host does not answer any more, or not yet."""
        return self._reading.done()

    @property
    def room(self) -> int:
        """For how many further sandboxes it has room."""
        return self.address.room - len(self.places)

    async def open(
        self, kind: Literal["process", "bubblewrap", "docker"], builds: Mapping[str, str] | None = None
    ) -> None:
        """Connect, and open its runtime; see `wire.Open`. Call `close` in any case.

        Raises:
            RuntimeUnavailable: it cannot be reached, or cannot start sandboxes; the text names the node.
        """
        url, limit = self.address.url + wire.CONTROL, aiohttp.ClientWSTimeout(ws_close=CLOSE_S)
        options: Any = {"heartbeat": wire.HEARTBEAT_S, "max_msg_size": wire.LARGEST, "timeout": limit}
        try:
            async with asyncio.timeout(CONNECT_S):
                self._socket = await self._http.ws_connect(url, headers=self._headers, **options)
        except (aiohttp.ClientError, OSError) as error:
            why = f"{type(error).__name__}: {error}"
            where = f"node {self.name} at {self.address.url}"
            raise RuntimeUnavailable(f"{where} cannot be reached from here: {why}") from error
        self._reading = asyncio.create_task(self._read(self._socket))
        asked = wire.Open(kind, installed_version(), builds)
        try:
            await self.call(asked, partial(_log.warning, "node %s: %s", self.name), within_s=OPEN_S)
        except (SandboxError, ValueError) as error:
            raise RuntimeUnavailable(f"node {self.name} cannot start sandboxes: {error}") from error

    async def lost(self) -> str:
        """Wait until it is lost; return why."""
        return await asyncio.shield(self._reading)

    async def close(self) -> None:
        """End its host, and wait until that has ended its sandboxes, for at most `CLOSE_S`. Safe to call twice."""
        if self._socket is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self._socket.close()
            await asyncio.wait([self._reading])

    async def call(
        self, asked: wire.Asked, on_progress: Callable[[str], None] = lambda _: None, *, within_s: float | None = None
    ) -> Any:
        """Return the result of a call. If this is cancelled, the call is, and has ended then, or its node is closed.

        Raises:
            NodeLost: there will be no answer. SandboxError: there is none within `within_s`. Others: as the call's.
        """
        if self.is_lost:
            raise NodeLost(self.name)
        number, answered = next(self._numbers), asyncio.get_running_loop().create_future()
        self._calls[number] = answered, on_progress
        method = type(asked).__name__
        waited = {answered, self._reading}
        try:
            await self._send(wire.Call(number, method, wire.ASKED[method].dump_json(asked).decode()))
            await asyncio.wait(waited, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await await_shielded(self._cancel(number, waited))
            raise
        finally:
            del self._calls[number]
        if not answered.done():
            if self.is_lost:
                raise NodeLost(self.name)
            raise SandboxError(f"node {self.name} did not answer {method} within {within_s:g} s")
        answer: wire.Answer = answered.result()
        if answer.failure is not None:
            raise wire.error_of(answer.failure)
        return wire.RESULTS[type(asked)].validate_json(answer.result)

    async def sent(self, command: Command) -> wire.SentCommand:
        """Return a command as it is sent, once the host has the file of its input.

        Raises:
            NodeLost: it is lost. SandboxError, OSError: the file cannot be sent, or not be read.
        """
        made = partial(wire.SentCommand, command.argv, command.cwd, command.timeout_s, command.env)
        if isinstance(command.stdin, bytes):
            return made(command.stdin)
        key = command.stdin, command.stdin.stat().st_mtime_ns
        async with self._sending:
            if key not in self._files:
                done = await finished_before(self._reading, self._uploaded(command.stdin))
                if done is None:
                    raise NodeLost(self.name)
                self._files[key] = done.result()
        return made(file=self._files[key])

    async def _uploaded(self, file: Path) -> str:
        """Send a file; return its digest."""
        with await asyncio.to_thread(file.open, "rb") as content:
            digest = (await asyncio.to_thread(hashlib.file_digest, content, "sha256")).hexdigest()
            content.seek(0)
            url = f"{self.address.url}{wire.FILES}/{digest}"
            try:
                async with self._http.put(url, data=content, headers=self._headers) as answer:
                    answer.raise_for_status()
            except aiohttp.ClientError as error:
                raise SandboxError(f"node {self.name} did not take a file: {error}") from error
        return digest

    async def _send(self, message: wire.Call | wire.Cancel) -> None:
        """Send a message, even if this is cancelled, or return as the node is lost, which ends what waits."""
        assert self._socket is not None  # noqa: S101  it is connected
        sending = self._socket.send_bytes(wire.FROM_RUN.dump_json(message))
        await await_shielded(finished_before(self._reading, sending))

    async def _cancel(self, number: int, waited: "set[asyncio.Future[Any]]") -> None:
        """Cancel a call, and wait until it has ended; if that takes too long, end it with the host."""
        await self._send(wire.Cancel(number))
        if not (await asyncio.wait(waited, timeout=CANCEL_S, return_when=asyncio.FIRST_COMPLETED))[0]:
            _log.warning("node %s is closed: it did not end a cancelled call within %g s", self.name, CANCEL_S)
            await self.close()

    async def _read(self, socket: "aiohttp.ClientWebSocketResponse[Any]") -> str:
        """Take its messages until the connection ends; return why that has ended."""
        try:
            while (message := await socket.receive()).type is aiohttp.WSMsgType.BINARY:
                self._take(wire.FROM_HOST.validate_json(message.data))
            return "it does not answer" if isinstance(socket.exception(), TimeoutError) else "its host has ended"
        except ValueError as error:
            return f"its host sends what is no message: {error}"
        finally:
            for joining in self._joins:
                joining.cancel()

    def _take(self, message: wire.FromHost) -> None:
        match message:
            case wire.Answer(number) if number in self._calls and not self._calls[number][0].done():
                self._calls[number][0].set_result(message)
            case wire.Progress(number, text) if number in self._calls:
                self._calls[number][1](text)
            case wire.Printed(session, data) if (log := self.places.get(session)) is not None:
                log.add(data)
            case wire.Connect(session) if session in self.places or session == wire.BUILDS:
                joining = asyncio.create_task(self._join(message))
                self._joins.add(joining)
                joining.add_done_callback(self._joins.discard)

    async def _join(self, asked: wire.Connect) -> None:
        """Connect to the gateway for a program on the node."""
        try:
            async with asyncio.timeout(CONNECT_S):
                stream = await asyncio.open_connection(urlsplit(self.address.url).hostname, asked.at)
        except OSError as error:
            _log.warning("a connection of node %s to the gateway was lost: %s", self.name, error)
            return
        stream[1].write(f"{asked.name}\n".encode())
        try:
            with contextlib.suppress(OSError):  # the session is closed
                await splice(stream, await asyncio.open_unix_connection(self._folder / asked.session / asked.port))
        finally:
            close(stream)
