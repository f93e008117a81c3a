"""The proxy: `CONNECT`, and plain HTTP by absolute URL, to the hosts that a sandbox's egress allows."""

import asyncio
import contextlib
import re
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http import HTTPStatus

from aiohttp import BasicAuth

from evolverpc_common.network_addresses import Address, parse_address, refusal_reason
from sandbox_runtime.api.spec import Allow, Closed
from sandbox_runtime.gateway.events import HostConnection, Report, shown
from sandbox_runtime.gateway.gateway_session import (
    UNIDENTIFIED_TIMEOUT_S,
    WRONG_TOKEN,
    Faulty,
    Find,
    SandboxGatewaySession,
)
from sandbox_runtime.gateway.package_registries import RegistryTunnels

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns all addresses of a host for a port, in the order to be tried. Raises OSError if there is none."""

LOOKUPS = 4
"""Names that are resolved for one sandbox at once."""


def system_resolver() -> Resolve:
    """Return the system's resolver for one sandbox, on threads of its own because it may hang."""
    threads = ThreadPoolExecutor(LOOKUPS, thread_name_prefix="gateway-resolver")

    async def resolve(host: str, port: int) -> Sequence[str]:
        def found() -> list[str]:
            infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            return list(dict.fromkeys(str(info[4][0]) for info in infos))

        return await asyncio.get_running_loop().run_in_executor(threads, found)

    return resolve


HEAD = 16 * 1024
"""Bytes of a request's head."""

CHUNK = 64 * 1024
RESOLVE_S = 15.0
CONNECT_S = 15.0
IDLE_S = 600.0
"""How long a tunnel may carry nothing in either direction."""

LINGER_S = 10.0

ADDRESSES = 4
"""How many addresses of a host are tried."""

NOT_ALLOWED = "this sandbox may not reach that host and port"
NOT_REACHED = "that host cannot be reached"

_NAME = re.compile(r"(?=.{1,253}$)([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_REQUEST = re.compile(r"(?P<method>[A-Z]{1,20}) (?P<target>[!-~]+) HTTP/1\.[01]")
_TARGET = re.compile(r"http://(?P<authority>[^/?#@]+)(?P<path>[/?][!-~]*)?")
_AUTHORITY = re.compile(r"(\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[^\[\]:]+))(:(?P<port>[0-9]{1,5}))?")
_FIELD = re.compile(r"(?P<name>[!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(?P<value>[^\r\n\0]*?)[ \t]*")
_OF_ONE_HOP = frozenset({"connection", "host", "keep-alive", "te", "upgrade"})


class _ProxyError(Exception):
    """An error response in place of a tunnel."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class _ProxyRequest:
    """A parsed request. `first`: what is sent to the host first; empty for `CONNECT`."""

    host: str
    port: int
    token: str | None
    first: bytes
    method: str


@dataclass
class ConnectProxy:
    """The proxy connections of one listener.

    `report` is called for each one to an allowed host when it has ended. `registries`: takes the place of some hosts.
    """

    find: Find
    faulty: Faulty
    resolve: Resolve
    report: Report
    registries: RegistryTunnels
    _tasks: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    def connect(self, ended: Callable[[], None]) -> asyncio.BaseProtocol:
        """Return the protocol of one connection."""
        return _ProxyConnection(asyncio.StreamReader(limit=HEAD), self._begin, ended)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer), name="gateway tunnel")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(UNIDENTIFIED_TIMEOUT_S):
                head = await _read_request(reader)
            session = self.find(head.token) if head.token is not None else None
            if session is None:
                if head.token is not None:
                    self.faulty(WRONG_TOKEN)
                raise _ProxyError(407, "this wants the sandbox's own token")
            with session.at_work():
                await self._carry(head, session, reader, writer)
        except _ProxyError as answered:
            await _answer(reader, writer, answered)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            writer.transport.abort()
        finally:
            writer.close()

    async def _carry(
        self,
        head: _ProxyRequest,
        session: SandboxGatewaySession,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        began, carried, reached = time.monotonic(), _Carried(), False
        try:
            if not self._is_allowed(head, session):
                what = f"{head.host}:{head.port}"
                session.refusals.add(what, f"not among the hosts that it may reach ({session.opened_by})")
                raise _ProxyError(403, NOT_ALLOWED)
            try:
                registry = self.registries.host("http" if head.first else "https", head.host, head.port)
                if registry is None:
                    there, to = await self._connected(head, session)
                else:
                    there, to = await self.registries.connect(session, registry)
                reached = True
                try:
                    if head.first:
                        carried.sent += len(head.first)
                        to.write(head.first)
                    else:
                        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                        if registry is not None:
                            await writer.start_tls(self.registries.context(head.host))
                    await _both_ways((reader, to), (there, writer), carried)
                except BaseException:
                    to.transport.abort()
                    raise
                to.close()  # once what it still holds is sent, if that is soon
                asyncio.get_running_loop().call_later(LINGER_S, to.transport.abort)
            finally:
                counts = (carried.sent, carried.received, time.monotonic() - began, reached, head.method)
                self.report(HostConnection(session.sandbox, shown(head.host), head.port, *counts))
        except _ProxyError as answered:  # within the session's work: it ends with the session
            await _answer(reader, writer, answered)

    async def _connected(
        self, head: _ProxyRequest, session: SandboxGatewaySession
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to an address that was checked: the name is resolved once, and not again by the connection."""
        what = f"{head.host}:{head.port}"
        addresses = await self._resolved(head)
        for address in addresses:
            if reason := refusal_reason(address, session.named):
                session.refusals.add(what, f"{reason} ({session.opened_by})")
                raise _ProxyError(502, NOT_REACHED)
        for address in addresses[:ADDRESSES]:
            try:
                async with asyncio.timeout(CONNECT_S):
                    return await asyncio.open_connection(str(address), head.port, limit=CHUNK)
            except (OSError, TimeoutError):
                continue
        raise _ProxyError(502, NOT_REACHED)

    def _is_allowed(self, head: _ProxyRequest, session: SandboxGatewaySession) -> bool:
        """Check the egress before anything is resolved, so that a sandbox cannot find out which hosts exist."""
        egress = session.egress
        if isinstance(egress, Closed):
            return False
        address = parse_address(head.host)
        if address is None and not _NAME.fullmatch(head.host):
            return False
        if not isinstance(egress, Allow):
            return True
        if address is not None:
            return any(address in network for network in session.named)
        return any(_matches(head.host, domain.lower()) for domain in egress.domains)

    async def _resolved(self, head: _ProxyRequest) -> list[Address]:
        if (address := parse_address(head.host)) is not None:
            return [address]
        try:
            async with asyncio.timeout(RESOLVE_S):
                found = await self.resolve(head.host, head.port)
        except (OSError, UnicodeError, TimeoutError):
            raise _ProxyError(502, NOT_REACHED) from None
        addresses = [address for text in found if (address := parse_address(text)) is not None]
        if not addresses:
            raise _ProxyError(502, NOT_REACHED)
        return addresses


class _ProxyConnection(asyncio.StreamReaderProtocol):
    """A connection that calls `ended` when it is lost."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        begin: Callable[[asyncio.StreamReader, asyncio.StreamWriter], None],
        ended: Callable[[], None],
    ) -> None:
        super().__init__(reader, begin)
        self._ended = ended

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the loss."""
        super().connection_lost(exc)
        self._ended()


async def _read_request(reader: asyncio.StreamReader) -> _ProxyRequest:
    try:
        content = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise _ProxyError(431, f"more than {HEAD} bytes before the first empty line") from None
    first, *lines = content[:-4].decode("latin-1").split("\r\n")
    request, fields = _REQUEST.fullmatch(first), list(map(_FIELD.fullmatch, lines))
    if request is None or None in fields:
        raise _ProxyError(400, "this is not a request of HTTP/1.1")
    named = [(field["name"], field["value"]) for field in fields if field is not None]
    tokens = [_basic(value) for name, value in named if name.lower() == "proxy-authorization"]
    token = tokens[0] if len(tokens) == 1 else None
    if request["method"] == "CONNECT":
        return _ProxyRequest(*_authority(request["target"], None), token, b"", "CONNECT")
    target = _TARGET.fullmatch(request["target"])
    if target is None:
        raise _ProxyError(400, "this is a proxy: ask it to CONNECT, or for a whole http:// URL")
    kept = [
        f"{name}: {value}"
        for name, value in named
        if name.lower() not in _OF_ONE_HOP and not name.lower().startswith("proxy-")
    ]
    path = target["path"] or "/"
    start = f"{request['method']} {'/' * path.startswith('?')}{path} HTTP/1.1"
    sent = [start, f"Host: {target['authority']}", *kept, "Connection: close", "", ""]
    return _ProxyRequest(
        *_authority(target["authority"], 80), token, "\r\n".join(sent).encode("latin-1"), request["method"]
    )


def _basic(value: str) -> str | None:
    """Return the password of `Proxy-Authorization: Basic ...`; None if the header is something else."""
    try:
        password: str = BasicAuth.decode(value, "utf-8").password
    except ValueError:
        return None
    return password


def _authority(text: str, port: int | None) -> tuple[str, int]:
    match = _AUTHORITY.fullmatch(text)
    found = int(match["port"]) if match and match["port"] else port
    if match is None or found is None or not 0 < found < 65536:
        raise _ProxyError(400, "what to connect to is not HOST:PORT")
    return (match["six"] or match["host"]).lower().removesuffix("."), found


def _matches(host: str, domain: str) -> bool:
    return host.endswith(domain[1:]) and host != domain[1:] if domain.startswith("*.") else host == domain


@dataclass
class _Carried:
    """Bytes that a connection has carried from the sandbox and to it."""

    sent: int = 0
    received: int = 0


async def _both_ways(
    out: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    back: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    carried: _Carried,
) -> None:
    """Copy in both directions until both ends close, and count the bytes.

    Raises:
        OSError: one of them breaks.
        TimeoutError: both are idle for too long.
    """
    loop = asyncio.get_running_loop()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(CHUNK):
            limit.reschedule(loop.time() + IDLE_S)
            if writer is out[1]:
                carried.sent += len(chunk)
            else:
                carried.received += len(chunk)
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
        else:  # TLS ends as a whole
            writer.close()

    async with asyncio.timeout(IDLE_S) as limit:
        tasks = [asyncio.create_task(carry(*way)) for way in (out, back)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answered: _ProxyError) -> None:
    body = f"{answered}\n"
    asks = 'Proxy-Authenticate: Basic realm="gateway"\r\n' if answered.status == 407 else ""
    head = f"HTTP/1.1 {answered.status} {HTTPStatus(answered.status).phrase}\r\nContent-Type: text/plain\r\n{asks}"
    writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode())
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(1):
            await writer.drain()
            writer.write_eof()
            while await reader.read(CHUNK):  # what is not read would undo the answer on its way
                pass
