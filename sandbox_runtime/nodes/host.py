"""The host of a node: a process with a runtime on its machine, which one run uses over HTTP.

`python -m sandbox_runtime.nodes.host ADDRESS` reads a token from the first line of its stdin, prints its URL once it
listens at this address, and serves the run that connects with the token. It ends, with all its sandboxes, as soon as
the run's connection ends, or its stdin.
"""

import asyncio
import contextlib
import hashlib
import hmac
import logging
import os
import re
import secrets
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from aiohttp import WSMsgType, web

from evolverpc_common.installation import installed_version
from evolverpc_common.network_addresses import url_host
from evolverpc_common.open_connections import raise_descriptor_limit
from evolverpc_common.output_tail import OutputTail
from sandbox_runtime.api.sandbox import LOG_BYTES, CommandResult, RuntimeUnavailable, SandboxError, SandboxGone
from sandbox_runtime.api.spec import MODELS_PORT, TUNNEL_PORT, Command, SandboxSpec, egress_to
from sandbox_runtime.backends import open_runtime
from sandbox_runtime.backends.local_backend import BACKLOG
from sandbox_runtime.backends.records import owned_folders
from sandbox_runtime.gateway.gateway_session import CONNECTIONS, TUNNELS
from sandbox_runtime.nodes import messages as wire
from sandbox_runtime.nodes.splicing import Connection, Forwarder, close, splice
from sandbox_runtime.runtime import Runtime, StartedSandbox

FIRST_S, JOIN_S = 60.0, 10.0
"""Seconds within which the run must connect, and within which it must answer a connection to its gateway."""

SOON_S, LOG_S = 0.1, 2.0
"""Seconds that output waits for more, and at least between two pieces of it, each of at most `LOG_BYTES`, for each
sandbox: so a flood does not fill the link."""

CLOSE_S = 20.0
"""Seconds that ending all sandboxes may take; the run waits longer."""

STREAMS = 16_384
"""Connections to the gateway at once, of all sandboxes."""

MOST_DESCRIPTORS = 65_536

_DIGEST = re.compile(r"[0-9a-f]{64}")
_log = logging.getLogger(__name__)


class ForwardedSession:
    """A `GatewaySession` whose connections the run answers. `variables`: as of `env` for the usual ports."""

    models_url = None

    def __init__(
        self, variables: Mapping[str, str], connected: Callable[[wire.Port, Connection], Coroutine[Any, Any, None]]
    ) -> None:
        self._variables = variables
        self._connected = connected
        self._forwarders: list[Forwarder] = []

    async def serve(self, models: socket.socket, tunnel: socket.socket) -> None:
        """Pass on what connects to these sockets, as many connections at once as the gateway accepts."""
        self._forwarders.append(Forwarder(models, CONNECTIONS, partial(self._connected, "models")))
        self._forwarders.append(Forwarder(tunnel, TUNNELS, partial(self._connected, "tunnel")))

    def env(self, models_url: str, tunnel_url: str | None) -> Mapping[str, str]:
        """Return the variables for the ports that the sandbox has."""
        own = {str(MODELS_PORT): models_url, str(TUNNEL_PORT): tunnel_url or ""}
        places = {f"127.0.0.1:{port}": urlsplit(url).netloc for port, url in own.items()}
        found = dict(self._variables)
        for usual, place in places.items():
            found = {name: value.replace(usual, place) for name, value in found.items()}
        return found

    async def close(self) -> None:
        """Accept nothing more, and end what was accepted."""
        for forwarder in self._forwarders:
            await forwarder.close()


class _SentLog(OutputTail):
    """A log whose new end is sent now and then. Of all that waits to be sent, at most one message is of a log."""

    def __init__(self, session: str, outgoing: "asyncio.Queue[wire.FromHost | _SentLog]") -> None:
        super().__init__(LOG_BYTES)
        self._session = session
        self._outgoing = outgoing
        self._unsent = OutputTail(LOG_BYTES)
        self._timer: asyncio.TimerHandle | None = None
        self._waits = False
        self._next = 0.0
        """When the next piece may be sent, by the clock of the event loop."""

    def add(self, data: bytes) -> None:
        """Add the next bytes, which are sent soon."""
        super().add(data)
        self._unsent.add(data)
        if self._timer is None and not self._waits:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(loop.time() + SOON_S, self._next), self.flush)

    def flush(self) -> None:
        """Queue the unsent output before any later message."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._waits and self._unsent.bytes():
            self._waits = True
            self._outgoing.put_nowait(self)

    def printed(self) -> wire.Printed:
        """Return the message about what is not sent."""
        self._next = asyncio.get_running_loop().time() + LOG_S
        unsent, self._unsent, self._waits = self._unsent.bytes(), OutputTail(LOG_BYTES), False
        return wire.Printed(self._session, unsent)


@dataclass
class _Started:
    """A sandbox of the run. `forwarder`: that of its server, at the node's address."""

    sandbox: StartedSandbox
    log: _SentLog
    forwarder: Forwarder
    session: ForwardedSession | None


@dataclass(eq=False)
class Host:
    """Answers one run. `folder`: for files. `over`: set when the run's connection has ended, or none has come.

    `streams`: takes the connections that the run makes for programs, and its port.
    """

    token: str
    address: str
    folder: Path
    over: asyncio.Event
    _runtime: Runtime | None = None
    _started: dict[str, _Started] = field(default_factory=dict)
    _calls: dict[int, asyncio.Task[str]] = field(default_factory=dict)
    _joining: dict[str, "asyncio.Future[Connection]"] = field(default_factory=dict)
    _outgoing: "asyncio.Queue[wire.FromHost | _SentLog]" = field(default_factory=asyncio.Queue)

    def __post_init__(self) -> None:
        self.streams = self._listening(STREAMS, self._streamed)
        self._unused = asyncio.get_running_loop().call_later(FIRST_S, self.over.set)

    def app(self) -> web.Application:
        """Return the application of its paths; each wants the token."""
        app = web.Application(middlewares=[self._authorized], client_max_size=0)
        app.router.add_get(wire.CONTROL, self._control)
        app.router.add_put(wire.FILES + "/{digest}", self._file)
        return app

    async def close(self) -> None:
        """End every call and every sandbox. Raises `SandboxError`, `OSError`: one could not be ended in time."""
        async with asyncio.timeout(CLOSE_S):
            for call in self._calls.values():
                call.cancel()
            await asyncio.gather(*self._calls.values(), return_exceptions=True)
            if self._runtime is not None:
                ended = await asyncio.gather(*map(self._stopped, tuple(self._started)), return_exceptions=True)
                await self._runtime.__aexit__(None, None, None)
                for each in ended:
                    if isinstance(each, BaseException):
                        raise each

    # --- HTTP --------------------------------------------------------------------------------------------------------

    @web.middleware
    async def _authorized(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").encode(errors="replace")
        if not hmac.compare_digest(given, f"Bearer {self.token}".encode()):
            raise web.HTTPUnauthorized
        return await handler(request)

    async def _control(self, request: web.Request) -> web.WebSocketResponse:
        if self._unused.cancelled():
            raise web.HTTPConflict(text="another run uses this host")
        self._unused.cancel()
        run = web.WebSocketResponse(heartbeat=wire.HOST_HEARTBEAT_S, max_msg_size=wire.LARGEST, autoclose=False)
        await run.prepare(request)
        writing = asyncio.create_task(self._write(run))
        try:
            while (message := await run.receive()).type is WSMsgType.BINARY:
                match wire.FROM_RUN.validate_json(message.data):
                    case wire.Call() as call:
                        made = self._calls[call.number] = asyncio.create_task(self._made(call))
                        made.add_done_callback(partial(self._answer, call.number))
                    case wire.Cancel(number) if number in self._calls:
                        self._calls[number].cancel()
            with contextlib.suppress(SandboxError, OSError):  # the end of the process tries again, and reports it
                await self.close()
            await run.close()  # not before, so that nothing is left as the run ends
        finally:
            writing.cancel()
            self.over.set()
        return run

    async def _write(self, run: web.WebSocketResponse) -> None:
        while True:
            message = await self._outgoing.get()
            sent = message.printed() if isinstance(message, _SentLog) else message
            await run.send_bytes(wire.FROM_HOST.dump_json(sent))

    async def _streamed(self, stream: Connection) -> None:
        """Take a connection that the run makes, which begins with its name."""
        with contextlib.suppress(OSError, ValueError):
            async with asyncio.timeout(JOIN_S):
                name = (await stream[0].readline()).decode().strip()
            joining = self._joining.pop(name, None)
            if joining is not None and not joining.done():
                joining.set_result(stream)
                await stream[1].wait_closed()

    async def _connected(self, session: str, port: wire.Port, connection: Connection) -> None:
        """Have the run connect to its gateway for a connection of a program, and pass on what both send."""
        name = secrets.token_urlsafe(32)
        joining = self._joining[name] = asyncio.get_running_loop().create_future()
        self._outgoing.put_nowait(wire.Connect(session, port, self.streams[1], name))
        try:
            async with asyncio.timeout(JOIN_S):
                stream = await joining
            await splice(connection, stream)
        except TimeoutError:
            _log.warning("the run did not answer a connection to its gateway within %g s", JOIN_S)
        finally:
            self._joining.pop(name, None)
            if joining.done() and not joining.cancelled():
                close(joining.result())

    async def _file(self, request: web.Request) -> web.Response:
        digest = request.match_info["digest"]
        if _DIGEST.fullmatch(digest) is None:
            raise web.HTTPNotFound
        hashed = hashlib.sha256()
        # An upload that breaks off leaves no file.
        with tempfile.NamedTemporaryFile(dir=self.folder) as file:
            async for piece in request.content.iter_any():
                hashed.update(piece)
                file.write(piece)
            if hashed.hexdigest() != digest:
                raise web.HTTPBadRequest(text="the file has another digest")
            file.flush()
            with contextlib.suppress(FileExistsError):
                os.link(file.name, self.folder / digest)  # a moment
        return web.Response(status=204)

    # --- calls -------------------------------------------------------------------------------------------------------

    async def _made(self, call: wire.Call) -> str:
        """Return the result of a call, as JSON."""
        asked = wire.ASKED[call.method].validate_json(call.params)
        result = await self._result(asked, lambda text: self._outgoing.put_nowait(wire.Progress(call.number, text)))
        return wire.RESULTS[type(asked)].dump_json(result).decode()

    def _answer(self, number: int, made: asyncio.Task[str]) -> None:
        """Answer a call that has ended in any way."""
        del self._calls[number]
        failure, result = None, "null"
        if made.cancelled():
            failure = wire.Failure("SandboxError", "it was cancelled")
        elif (error := made.exception()) is None:
            result = made.result()
        elif isinstance(error, SandboxError | OSError | ValueError):
            failure = wire.failure_of(error)
        else:
            _log.error("a request of the run failed", exc_info=error)
            failure = wire.Failure("SandboxError", f"internal error: see the log of the host at {self.address}")
        self._outgoing.put_nowait(wire.Answer(number, result, failure))

    async def _result(self, asked: wire.Asked, on_progress: Callable[[str], None]) -> Any:
        match asked:
            case wire.Open():
                return await self._open(asked, on_progress)
            case wire.Prepare():
                recipe = replace(asked.recipe, checkout=tuple(map(self._command, asked.checkout)))
                prepared = await self.runtime.prepare(recipe, on_progress=on_progress, rebuild=asked.rebuild)
                return replace(prepared, recipe=asked.recipe)
            case wire.Begin():
                return await self._begun(asked)
            case wire.Run(session, command, limits):
                tails, began = [OutputTail(limit) for limit in limits], time.monotonic()
                status = await self._sandbox(session).sandbox.run(self._command(command), *tails)
                stdout, stderr = (*(tail.bytes() for tail in tails), b"")[:2]
                return CommandResult(status, stdout, stderr, time.monotonic() - began)
            case wire.Serve(session, main, token):
                started = self._sandbox(session)
                endpoint = await started.sandbox.endpoint(token)
                try:
                    own = replace(main, env={**main.env, "GEPA_ALLOWED_HOSTS": url_host(self.address)})
                    return await started.sandbox.serve(self._command(own), endpoint)
                finally:
                    started.log.flush()
            case wire.Stop(id_):
                return await self._stopped(id_)
            case wire.Found(labels):
                sessions = {started.sandbox.id: session for session, started in self._started.items()}
                return [replace(each, id=sessions.get(each.id, each.id)) for each in await self.runtime.found(labels)]

    @property
    def runtime(self) -> Runtime:
        """The runtime, once it is open. Raises `SandboxError`."""
        if self._runtime is None:
            raise SandboxError("the runtime of this node is not open")
        return self._runtime

    async def _open(self, asked: wire.Open, on_progress: Callable[[str], None]) -> None:
        if asked.version != (own := installed_version()):
            raise RuntimeUnavailable(f"it has evolverpc {own} and not {asked.version}: install the same on each node")
        builds = None
        if asked.builds is not None:
            builds = ForwardedSession(asked.builds, partial(self._connected, wire.BUILDS))
        runtime = open_runtime(asked.kind, build_gateway_session=builds)
        await runtime.__aenter__()
        self._runtime = runtime
        try:
            await runtime.sweep()  # what a host that was killed has left here
        except (SandboxError, OSError) as error:
            on_progress(str(error))

    async def _begun(self, asked: wire.Begin) -> int:
        log = _SentLog(asked.session, self._outgoing)
        options = {**vars(asked.options), "egress": egress_to(asked.hosts)}
        main, session = self._command(asked.main), None
        async with contextlib.AsyncExitStack() as undoing:
            undoing.callback(log.flush)
            if asked.gateway is not None:
                session = ForwardedSession(asked.gateway, partial(self._connected, asked.session))
                undoing.push_async_callback(session.close)
            spec = SandboxSpec(**options, main=main, prepared=asked.prepared, gateway_session=session)
            sandbox = await self.runtime.begin(spec, log)
            undoing.push_async_callback(self.runtime.stop, sandbox.id)
            path = unquote(urlsplit((await sandbox.endpoint("")).url).netloc)
            forwarder, port = self._listening(CONNECTIONS, partial(_entered, path))
            self._started[asked.session] = _Started(sandbox, log, forwarder, session)
            undoing.pop_all()
        log.flush()
        return port

    async def _stopped(self, id_: str) -> None:
        started = self._started.get(id_)
        if started is None:
            return await self.runtime.stop(id_)
        try:
            await self.runtime.stop(started.sandbox.id)
        finally:
            await started.forwarder.close()
            if started.session is not None:
                await started.session.close()
        self._started.pop(id_, None)
        return None

    def _sandbox(self, session: str) -> _Started:
        if session not in self._started:
            raise SandboxGone("the sandbox has ended")
        return self._started[session]

    def _listening(self, most: int, join: Callable[[Connection], Coroutine[Any, Any, None]]) -> tuple[Forwarder, int]:
        """Return a forwarder of a port at the node's address, and the port."""
        family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
        listening = socket.create_server((self.address, 0), family=family, backlog=BACKLOG)
        return Forwarder(listening, most, join), listening.getsockname()[1]

    def _command(self, sent: wire.SentCommand) -> Command:
        if sent.file is not None and _DIGEST.fullmatch(sent.file) is None:
            raise ValueError(f"{sent.file!r} is no digest of a file")
        stdin = sent.stdin if sent.file is None else self.folder / sent.file
        return Command(sent.argv, sent.cwd, stdin, sent.timeout_s, sent.env)


async def _entered(path: str, entered: Connection) -> None:
    """Pass on what connects to the node for the server of a sandbox."""
    with contextlib.suppress(OSError):  # it has ended
        await splice(entered, await asyncio.open_unix_connection(path))


async def serve(address: str, token: str, over: asyncio.Event) -> None:
    """Serve one run until its connection ends, or `over` is set."""
    with owned_folders("hosts") as folders:
        host = Host(token, address, folders.folder, over)
        runner = web.AppRunner(host.app(), access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, address, 0).start()
            print(f"http://{url_host(address)}:{runner.addresses[0][1]}", flush=True)
            await over.wait()
        finally:
            try:
                await host.close()
            finally:
                await host.streams[0].close()
                await runner.cleanup()


def main(address: str) -> None:
    """Serve at an address of this machine; see the module."""
    token = sys.stdin.readline().strip()
    raise_descriptor_limit(MOST_DESCRIPTORS)

    async def until_stdin_ends() -> None:
        over, loop = asyncio.Event(), asyncio.get_running_loop()

        def watch() -> None:
            sys.stdin.read()
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(over.set)

        threading.Thread(target=watch, daemon=True).start()
        await serve(address, token, over)

    asyncio.run(until_stdin_ends())


if __name__ == "__main__":
    main(*sys.argv[1:])
