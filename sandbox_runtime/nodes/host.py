"""The host of a node: a process with a runtime on its machine, which one run uses over HTTP.

`python -m sandbox_runtime.nodes.host ADDRESS` reads a token from the first line of its stdin, prints its URL once it
listens at this address, and serves the run that connects with the token. It ends, with all its sandboxes, as soon as
the run's connection ends, or its stdin.
"""

import asyncio
import contextlib
import hashlib
import hmac
import os
import re
import secrets
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from aiohttp import web

from evolverpc_common.output_tail import OutputTail
from sandbox_runtime.api.sandbox import LOG_BYTES, CommandResult, SandboxError, SandboxGone
from sandbox_runtime.api.spec import MODELS_PORT, TUNNEL_PORT, Command, SandboxOptions, SandboxSpec, egress_to
from sandbox_runtime.backends import open_runtime
from sandbox_runtime.nodes import messages as wire
from sandbox_runtime.nodes.splicing import Connection, Forwarder, WebSocketStream, splice
from sandbox_runtime.runtime import Runtime, StartedSandbox

FIRST_S = 60.0
"""Seconds within which the run must connect."""

JOIN_S = 10.0
"""Seconds within which the run must answer a connection to its gateway."""

LOG_S = 0.1
"""Seconds that output waits for more."""

CLOSE_S = 30.0
"""Seconds that ending all sandboxes may take."""

_DIGEST = re.compile(r"[0-9a-f]{64}")


class ForwardedSession:
    """A `GatewaySession` whose connections the run answers. `variables`: as of `env` for the usual ports."""

    models_url = None

    def __init__(
        self, variables: Mapping[str, str], connected: Callable[[wire.Port, Connection], Coroutine[Any, Any, None]]
    ) -> None:
        self._variables = variables
        self._forwarders = {port: Forwarder(partial(connected, port)) for port in wire.PORTS}

    async def serve(self, models: socket.socket, tunnel: socket.socket) -> None:
        """Pass on what connects to these sockets."""
        await self._forwarders["models"].open(listening=models)
        await self._forwarders["tunnel"].open(listening=tunnel)

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
        for forwarder in self._forwarders.values():
            await forwarder.close()


class _SentLog(OutputTail):
    """A log that is sent piece by piece; of what is printed at once, the end."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        super().__init__(LOG_BYTES)
        self._send = send
        self._unsent = OutputTail(LOG_BYTES)
        self._timer: asyncio.TimerHandle | None = None

    def add(self, data: bytes) -> None:
        """Add the next bytes, which are sent soon."""
        super().add(data)
        self._unsent.add(data)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOG_S, self.flush)

    def flush(self) -> None:
        """Send what is not sent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        unsent, self._unsent = self._unsent.bytes(), OutputTail(LOG_BYTES)
        if unsent:
            self._send(unsent)


@dataclass
class _Started:
    """A sandbox of the run. `forwarder`: that of its server, at the node's address."""

    sandbox: StartedSandbox
    log: "_SentLog"
    forwarder: Forwarder
    session: ForwardedSession | None


@dataclass(eq=False)
class _Joining:
    """A connection that waits for the run. `stream`: what the run connects; `over`: set when nothing is passed on."""

    stream: "asyncio.Future[WebSocketStream]" = field(default_factory=asyncio.Future)
    over: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(eq=False)
class Host:
    """Answers one run. `folder`: an empty one for files. `over`: set when the run's connection has ended.

    `is_used`: whether the run has connected.
    """

    token: str
    address: str
    folder: Path
    over: asyncio.Event
    _runtime: Runtime | None = None
    _builds: ForwardedSession | None = None
    _started: dict[str, _Started] = field(default_factory=dict)
    _calls: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    _joining: dict[str, "_Joining"] = field(default_factory=dict)
    _outgoing: asyncio.Queue[bytes] = field(default_factory=asyncio.Queue)
    is_used: bool = False

    def app(self) -> web.Application:
        """Return the application of its paths; each wants the token."""
        app = web.Application(middlewares=[self._authorized], client_max_size=0)
        app.router.add_get(wire.CONTROL, self._control)
        app.router.add_get(wire.STREAMS + "/{name}", self._stream)
        app.router.add_put(wire.FILES + "/{digest}", self._file)
        return app

    async def close(self) -> None:
        """End every call and every sandbox. Raises `SandboxError`: one could not be ended."""
        calls = tuple(self._calls.values())
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls)
        if self._runtime is not None:
            ended = await asyncio.gather(*map(self._stopped, tuple(self._started)), return_exceptions=True)
            await self._runtime.__aexit__(None, None, None)
            for each in ended:
                if isinstance(each, BaseException):
                    raise each

    def end_unless_used(self) -> None:
        """End the host if no run has connected."""
        if not self.is_used:
            self.over.set()

    # --- HTTP --------------------------------------------------------------------------------------------------------

    @web.middleware
    async def _authorized(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").encode()
        if not hmac.compare_digest(given, f"Bearer {self.token}".encode()):
            raise web.HTTPUnauthorized
        return await handler(request)

    async def _control(self, request: web.Request) -> web.WebSocketResponse:
        if self.is_used:
            raise web.HTTPConflict(text="another run uses this host")
        self.is_used = True
        run = web.WebSocketResponse(heartbeat=wire.HEARTBEAT_S, max_msg_size=wire.LARGEST, autoclose=False)
        await run.prepare(request)
        writing = asyncio.create_task(self._write(run))
        try:
            async for message in run:
                match wire.FROM_RUN.validate_json(message.data):
                    case wire.Call() as call:
                        self._calls[call.number] = asyncio.create_task(self._answer(call))
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
            await run.send_bytes(await self._outgoing.get())

    def _send(self, message: wire.FromHost) -> None:
        self._outgoing.put_nowait(wire.FROM_HOST.dump_json(message))

    async def _stream(self, request: web.Request) -> web.WebSocketResponse:
        joining = self._joining.pop(request.match_info["name"], None)
        if joining is None:
            raise web.HTTPNotFound
        stream = web.WebSocketResponse()
        await stream.prepare(request)
        joining.stream.set_result(WebSocketStream(stream))
        await joining.over.wait()
        return stream

    async def _connected(self, session: str, port: wire.Port, connection: Connection) -> None:
        """Have the run connect to its gateway for a connection of a program, and pass on what both send."""
        name, joining = secrets.token_urlsafe(16), _Joining()
        self._joining[name] = joining
        self._send(wire.Connect(session, port, name))
        try:
            async with asyncio.timeout(JOIN_S):
                stream = await joining.stream
            await splice(connection, stream)
        except TimeoutError:
            await connection.close()
        finally:
            self._joining.pop(name, None)
            joining.over.set()

    async def _file(self, request: web.Request) -> web.Response:
        digest = request.match_info["digest"]
        if _DIGEST.fullmatch(digest) is None:
            raise web.HTTPNotFound
        hashed = hashlib.sha256()
        with tempfile.NamedTemporaryFile(dir=self.folder, delete=False) as file:
            async for piece in request.content.iter_any():
                hashed.update(piece)
                file.write(piece)
        if hashed.hexdigest() != digest:
            raise web.HTTPBadRequest(text="the file has another digest")
        os.replace(file.name, self.folder / digest)  # noqa: PTH105  a moment
        return web.Response(status=204)

    # --- calls -------------------------------------------------------------------------------------------------------

    async def _answer(self, call: wire.Call) -> None:
        try:
            asked = wire.ASKED[call.method].validate_json(call.params)
            result = await self._made(asked, lambda text: self._send(wire.Progress(call.number, text)))
            answer = wire.Answer(call.number, wire.RESULTS[type(asked)].dump_json(result).decode())
        except asyncio.CancelledError:
            answer = wire.Answer(call.number, failure=wire.Failure("SandboxError", "it was cancelled"))
        except (SandboxError, OSError, ValueError) as error:
            answer = wire.Answer(call.number, failure=wire.failure_of(error))
        finally:
            self._calls.pop(call.number, None)
        self._send(answer)

    async def _made(self, asked: wire.Asked, on_progress: Callable[[str], None]) -> Any:
        match asked:
            case wire.Open():
                await self._open(asked)
                return None
            case wire.Prepare():
                recipe = replace(asked.recipe, checkout=tuple(map(self._command, asked.checkout)))
                prepared = await self.runtime.prepare(recipe, on_progress=on_progress, rebuild=asked.rebuild)
                return replace(prepared, recipe=asked.recipe)
            case wire.Begin():
                return await self._begun(asked)
            case wire.Run(id_, command, limits):
                tails, began = [OutputTail(limit) for limit in limits], time.monotonic()
                status = await self._sandbox(id_).sandbox.run(self._command(command), *tails)
                stdout, stderr = (*(tail.bytes() for tail in tails), b"")[:2]
                return CommandResult(status, stdout, stderr, time.monotonic() - began)
            case wire.Serve(id_, main, token):
                started = self._sandbox(id_)
                endpoint = await started.sandbox.endpoint(token)
                try:
                    own = replace(main, env={**main.env, "GEPA_ALLOWED_HOSTS": self.address})  # as clients call it
                    return await started.sandbox.serve(self._command(own), endpoint)
                finally:
                    started.log.flush()
            case wire.Stop(id_):
                await self._stopped(id_)
                return None
            case wire.Found(labels):
                return list(await self.runtime.found(labels))

    @property
    def runtime(self) -> Runtime:
        """The runtime, once it is open. Raises `SandboxError`."""
        if self._runtime is None:
            raise SandboxError("the runtime of this node is not open")
        return self._runtime

    async def _open(self, asked: wire.Open) -> None:
        builds = None
        if asked.builds is not None:
            builds = ForwardedSession(asked.builds, partial(self._connected, wire.BUILDS))
        runtime = open_runtime(asked.kind, build_gateway_session=builds)
        await runtime.__aenter__()
        self._runtime = runtime
        await runtime.sweep()  # what a host that was killed has left here

    async def _begun(self, asked: wire.Begin) -> wire.Begun:
        log = _SentLog(lambda data: self._send(wire.Printed(asked.session, data)))
        try:
            return await self._begun_with(asked, log)
        finally:
            log.flush()

    async def _begun_with(self, asked: wire.Begin, log: "_SentLog") -> wire.Begun:
        session = None
        if asked.gateway is not None:
            session = ForwardedSession(asked.gateway, partial(self._connected, asked.session))
        options = {option.name: getattr(asked.options, option.name) for option in fields(SandboxOptions)}
        options["egress"] = egress_to(asked.hosts)
        main = self._command(asked.main)
        spec = SandboxSpec(**options, main=main, prepared=asked.prepared, gateway_session=session)
        sandbox = await self.runtime.begin(spec, log)
        try:
            forwarder = Forwarder(partial(_entered, unquote(urlsplit((await sandbox.endpoint("")).url).netloc)))
            port = await forwarder.open(self.address)
        except BaseException:
            await self.runtime.stop(sandbox.id)
            raise
        self._started[sandbox.id] = _Started(sandbox, log, forwarder, session)
        return wire.Begun(sandbox.id, port)

    async def _stopped(self, id_: str) -> None:
        started = self._started.get(id_)
        if started is not None:
            await started.forwarder.close()
            if started.session is not None:
                await started.session.close()
        await self.runtime.stop(id_)
        self._started.pop(id_, None)

    def _sandbox(self, id_: str) -> _Started:
        if id_ not in self._started:
            raise SandboxGone(f"sandbox {id_} has ended")
        return self._started[id_]

    def _command(self, sent: wire.SentCommand) -> Command:
        if sent.file is not None and _DIGEST.fullmatch(sent.file) is None:
            raise ValueError(f"{sent.file!r} is no digest of a file")
        stdin = sent.stdin if sent.file is None else self.folder / sent.file
        return Command(sent.argv, sent.cwd, stdin, sent.timeout_s, sent.env)


async def _entered(path: str, entered: Connection) -> None:
    """Pass on what connects to the node for the server of a sandbox."""
    try:
        server = Connection(*await asyncio.open_unix_connection(path))
    except OSError:  # it has ended
        await entered.close()
        return
    await splice(entered, server)


async def serve(address: str, token: str, over: asyncio.Event) -> None:
    """Serve one run until its connection ends, or `over` is set, or none has come."""
    with tempfile.TemporaryDirectory(prefix="evolverpc-host-") as folder:
        host = Host(token, address, Path(folder), over)
        runner = web.AppRunner(host.app(), access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, address, 0).start()
            print(f"http://{address}:{runner.addresses[0][1]}", flush=True)
            asyncio.get_running_loop().call_later(FIRST_S, host.end_unless_used)
            await over.wait()
        finally:
            async with asyncio.timeout(CLOSE_S):
                await host.close()
            await runner.cleanup()


def main(address: str) -> None:
    """Serve at an address of this machine; see the module."""
    token = sys.stdin.readline().strip()

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
