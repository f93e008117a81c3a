"""One sandbox's session at the gateway: its token, its listening sockets, its running requests, and its HTTP."""

import asyncio
import hmac
import logging
import re
import secrets
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

import orjson
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from evolverpc_common.network_addresses import parse_networks
from sandbox_runtime.api.spec import AUTHORITY, Allow, Egress, Open
from sandbox_runtime.gateway.events import RefusalLog
from sandbox_runtime.gateway.providers import Provider, SecretHeader

Connect = Callable[[Callable[[], None]], asyncio.BaseProtocol]
"""Makes the protocol of one connection, which calls its argument when the connection is lost."""

FULL_S = 0.5
"""Seconds until the next attempt if a connection is not accepted: mostly as this process can open no more files."""

_log = logging.getLogger(__name__)


class Listener:
    """Accepts from its construction, in a running loop, until it is closed. It owns the socket."""

    def __init__(self, listening: socket.socket, most: int, connect: Connect) -> None:
        listening.setblocking(False)
        self._socket = listening
        self._room = asyncio.Semaphore(most)
        self._connect = connect
        self._transports: set[asyncio.WriteTransport] = set()
        self._task = asyncio.create_task(self._accept(), name="gateway listener")

    @property
    def port(self) -> int:
        """The port of a TCP socket."""
        return int(self._socket.getsockname()[1])

    def stop(self) -> None:
        """Accept no more and abort all connections at once, without a further response."""
        self._task.cancel()
        for transport in tuple(self._transports):
            transport.abort()

    async def close(self) -> None:
        """Stop, and close the socket."""
        self.stop()
        await asyncio.wait([self._task])
        self._socket.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._room.acquire()
            try:
                connection, _ = await loop.sock_accept(self._socket)
            except OSError as error:
                self._room.release()
                _log.warning("a connection of a sandbox is not accepted: %s", error.strerror)
                await asyncio.sleep(FULL_S)
            else:
                await self._take(connection)

    async def _take(self, connection: socket.socket) -> None:
        mine: list[asyncio.WriteTransport] = []

        def ended() -> None:
            self._room.release()
            self._transports.difference_update(mine)

        loop = asyncio.get_running_loop()
        try:
            transport, _ = await loop.connect_accepted_socket(lambda: self._connect(ended), connection)
        except OSError:  # it is gone already
            connection.close()
            self._room.release()
            return
        assert isinstance(transport, asyncio.WriteTransport)  # noqa: S101  a stream's is
        mine.append(transport)
        if not transport.is_closing():
            self._transports.add(transport)


CONNECTIONS = 128
"""Connections of one sandbox for models at once."""

TUNNELS = 64
"""Connections of one sandbox to the proxy at once."""

BODIES = 64 * 2**20
"""Bytes of running requests that are held for one sandbox."""

USER = "sandbox"
"""The user name beside the token for proxies that need one; any is accepted."""


@dataclass(eq=False)
class SandboxGatewaySession:
    """A `GatewaySession` in this process. Made by `Gateway.open_session`.

    `models_url`: the address for models on the gateway's own socket; None if it has none. `named`: the networks that
    its egress names. `authority`: the certificate of the authority that the gateway itself is for some hosts, in PEM.
    `models`: the connections of its running requests, whose bodies have `held_bytes`.
    """

    sandbox: str
    egress: Egress
    providers: Sequence[Provider] = field(repr=False)
    headers: Sequence[SecretHeader] = field(repr=False)
    refusals: RefusalLog = field(repr=False)
    listen: Callable[["SandboxGatewaySession", socket.socket, socket.socket], Sequence[Listener]] = field(repr=False)
    models_url: str | None
    opened_by: str
    authority: str | None = None
    held_bytes: int = 0
    closed: bool = False
    models: set[asyncio.BaseTransport] = field(default_factory=set, repr=False)
    _listeners: list[Listener] = field(default_factory=list, init=False, repr=False)
    _tasks: set[asyncio.Task[object]] = field(default_factory=set, init=False, repr=False)

    def __post_init__(self) -> None:
        self.named = parse_networks(self.egress.cidrs) if isinstance(self.egress, Allow) else ()
        self._token = secrets.token_urlsafe(32)

    @property
    def open_to_all(self) -> bool:
        """Whether its egress is `Open`."""
        return isinstance(self.egress, Open)

    async def serve(self, models: socket.socket, tunnel: socket.socket) -> None:
        """Answer this sandbox alone on these listening sockets too.

        Raises:
            RuntimeError: the session is closed; the sockets are closed too.
        """
        if self.closed:
            models.close()
            tunnel.close()
            raise RuntimeError(f"the session of {self.sandbox} is closed")
        self._listeners += self.listen(self, models, tunnel)

    def env(self, models_url: str, tunnel_url: str | None) -> Mapping[str, str]:
        """Return the variables by which programs find the gateway at these addresses. They hold the sandbox's token.

        `tunnel_url`: None for programs that use no proxy.
        """
        found = {}
        for provider in self.providers:
            found.update(provider.env(models_url, self._token))
        for header in self.headers:
            found[header.variable] = f"{models_url.rstrip('/')}/_hosts/{self._token}/{header.host}"
        if tunnel_url is not None:
            parts = urlsplit(tunnel_url)
            proxy = f"{parts.scheme}://{USER}:{self._token}@{parts.netloc}"
            for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"):
                found[name] = found[name.lower()] = proxy
            beside = dict.fromkeys(("localhost", "127.0.0.1", "::1", urlsplit(models_url).hostname or "localhost"))
            found["NO_PROXY"] = found["no_proxy"] = ",".join(beside)
        if self.authority is not None:
            found[AUTHORITY] = self.authority
        if self.providers and not self.open_to_all:
            # Else litellm, as it is imported, asks GitHub for prices: refused, and three times over.
            found["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
        return found

    def faulty(self, what: str) -> None:
        """Count a faulty request on this sandbox's own sockets."""
        if not self.closed:
            self.refusals.add("the gateway", what)

    def find(self, token: str) -> "SandboxGatewaySession | None":
        """Return this session if the token is its own, compared in constant time; None once it is closed."""
        is_own = hmac.compare_digest(token.encode(errors="replace"), self._token.encode())
        return self if is_own and not self.closed else None

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Register the running task: it is cancelled and waited for when the session closes."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  within a coroutine there is one
        self._tasks.add(task)
        try:
            yield
        finally:
            self._tasks.discard(task)

    async def close(self) -> None:
        """End all running requests and answer no more; their calls are reported before this returns."""
        self.closed = True
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener.stop()
        for transport in tuple(self.models):
            if isinstance(transport, asyncio.WriteTransport):
                transport.abort()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        for listener in listeners:
            await listener.close()
        if tasks:
            await asyncio.wait(tasks)
        self.refusals.close()


KEEPALIVE_S = 75.0
"""Longer than clients keep an unused connection, so that none is used while it closes."""

UNIDENTIFIED_TIMEOUT_S = 10.0
"""How long a connection may stay open without a valid token."""

HOST_PATH = re.compile(r"/_hosts/(?P<token>[^/?]*)/?(?P<host>[^/?]*)(?P<rest>.*)", re.DOTALL)
"""The path of a request to a host with a secret header. It holds the token, so that any HTTP client can send it."""

Find = Callable[[str], SandboxGatewaySession | None]
"""Returns the session that a token belongs to, None if it belongs to none that may connect here."""

Faulty = Callable[[str], None]
"""Takes note of what is wrong with a request that has no valid token (`WRONG_TOKEN`), or is not valid HTTP."""

WRONG_TOKEN = "a token that is not this sandbox's"  # noqa: S105  a reason

Answer = Callable[[web.BaseRequest, SandboxGatewaySession], Awaitable[web.StreamResponse]]


def failure(status: int, kind: str, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """Return an error in a form that the clients of every dialect parse."""
    error = {"type": kind, "code": kind, "message": message, "param": None}
    body = orjson.dumps({"type": "error", "error": error})
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)


class HttpFrontend:
    """The HTTP connections of one listener."""

    def __init__(self, find: Find, faulty: Faulty, answer: Answer) -> None:
        self._find = find
        self._faulty = faulty
        self._answer = answer
        self._log = ServerLog(faulty)
        self._server = web.Server(self._handle, handler_cancellation=True)

    def connect(self, ended: Callable[[], None]) -> asyncio.BaseProtocol:
        """Return the protocol of one connection."""
        return _HttpConnection(
            *(self._server, ended),
            loop=asyncio.get_running_loop(),
            keepalive_timeout=KEEPALIVE_S,
            lingering_time=1.0,
            access_log=cast("Any", None),  # calls are reported elsewhere, and tokens never
            auto_decompress=False,
            logger=self._log,
        )

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        shown = tokens(request)
        session = next(filter(None, map(self._find, shown)), None)
        connection, transport = request.protocol, request.transport
        if session is None or transport is None or not isinstance(connection, _HttpConnection):
            if shown:
                self._faulty(WRONG_TOKEN)
            response: web.StreamResponse = failure(401, "authentication_error", "this is not the sandbox's token")
            response.force_close()
            return response
        connection.admit()
        if len(session.models) >= CONNECTIONS:
            headers = {"Retry-After": "1"}
            response = failure(429, "rate_limit_error", f"more than {CONNECTIONS} requests at once", headers)
            response.force_close()
            return response
        # For this request alone: behind a forwarder, the next one on the connection may be another sandbox's.
        session.models.add(transport)
        try:
            with session.at_work():
                return await self._answer(request, session)
        finally:
            session.models.discard(transport)


class ServerLog(logging.Logger):
    """The log of aiohttp's server, bounded: a sandboxed program decides how many requests fail.

    Malformed requests go to `faulty`; of other errors, each type is logged once with its traceback.
    """

    def __init__(self, faulty: Faulty) -> None:
        super().__init__(__name__, logging.ERROR)
        self._faulty = faulty
        self._logged: set[type[BaseException]] = set()

    def exception(self, msg: object, *args: object, exc_info: Any = True, **_: Any) -> None:
        """Log or count an error."""
        if isinstance(exc_info, HttpProcessingError | web.RequestPayloadError):
            self._faulty("a request that is not valid HTTP")
        elif isinstance(exc_info, BaseException) and type(exc_info) not in self._logged:
            self._logged.add(type(exc_info))
            _log.error(msg, *args, exc_info=exc_info)


class _HttpConnection(web.RequestHandler):
    """A connection that reports its loss, and is closed soon if it shows no token."""

    def __init__(self, server: web.Server, ended: Callable[[], None], **options: Any) -> None:
        super().__init__(server, **options)
        self._ended = ended
        self._limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the limit for connections without a token."""
        self._limit = asyncio.get_running_loop().call_later(UNIDENTIFIED_TIMEOUT_S, transport.close)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Report the loss."""
        self.admit()
        super().connection_lost(exc)
        self._ended()

    def admit(self) -> None:
        """Let the connection stay: it has shown a token."""
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None


def tokens(request: web.BaseRequest) -> list[str]:
    """Return every text that may be a token: in the address of a host, else wherever a client puts its key."""
    if match := HOST_PATH.fullmatch(request.raw_path):
        return [match["token"]]
    headers = request.headers
    found = [value for name in ("x-api-key", "api-key", "x-goog-api-key") if (value := headers.get(name))]
    scheme, _, value = headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        found.append(value.strip())
    return found
