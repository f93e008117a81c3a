"""Package registries with a password: the proxy adds it to the requests of builds, which never see it."""

import asyncio
import base64
import re
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

import trustme
from aiohttp import web

from sandbox_runtime.gateway.gateway_session import SandboxGatewaySession, ServerLog, failure
from sandbox_runtime.gateway.providers import SecretHeader
from sandbox_runtime.gateway.upstream import HostRequests

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_ADDRESS = re.compile(r"((?P<name>[A-Za-z0-9][\w.-]*)=)?(?P<address>https?://[^\s,]+)")
_PASSWORD = re.compile(r"UV_INDEX_(?P<name>\w+)_PASSWORD")
_PORTS = {"http": 80, "https": 443}
_READING = ("GET", "HEAD")


def registry_headers(sources: Mapping[str, str], report: Callable[[str], None]) -> list[SecretHeader]:
    """Return the headers with the user names and passwords of these variables, which name sources of packages.

    They are in the addresses; those of uv for an index, `UV_INDEX_NAME_PASSWORD`, go to the address that `UV_INDEX` or
    `UV_DEFAULT_INDEX` gives with that name, and to none that a repository gives. `report` is called for each variable
    that is not used, as there is no such address.

    Raises:
        ValueError: an address is invalid, or a host has two passwords. The text has none.
    """
    found: dict[SecretHeader, None] = {}
    named: set[str] = set()
    for variable, value in sources.items():
        for match in () if variable.upper().endswith("_PROXY") else _ADDRESS.finditer(value):
            name = re.sub("[^A-Z0-9]", "_", (match["name"] or "").upper())
            named.add(name)
            try:
                found |= dict.fromkeys(_header(match["address"], name, sources))
            except ValueError as error:
                raise ValueError(f"{variable}: the address of a package index cannot be used: {error}") from None
    for variable in sources:
        of_index = _PASSWORD.fullmatch(variable)
        if of_index is not None and of_index["name"] not in named:
            index = of_index["name"].lower()
            report(f"{variable} is not used: give the address of this index too, as UV_INDEX='{index}=https://...'")
    hosts = [(header.scheme, header.host) for header in found]
    if twice := next((host for scheme, host in hosts if hosts.count((scheme, host)) > 1), None):
        raise ValueError(
            f"two passwords of package indexes are for {twice}, and builds use one for a host: leave one out"
        )
    return list(found)


def _header(address: str, name: str, sources: Mapping[str, str]) -> list[SecretHeader]:
    parts = urlsplit(address)
    user, password = (None if text is None else unquote(text) for text in (parts.username, parts.password))
    if password is None and name:
        user = user or sources.get(f"UV_INDEX_{name}_USERNAME")
        password = sources.get(f"UV_INDEX_{name}_PASSWORD")
    if not user and not password:
        return []
    secret = base64.b64encode(f"{user or ''}:{password or ''}".encode()).decode()
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    return [SecretHeader(_named(parts.scheme, host, port), "Authorization", secret, "Basic ", parts.scheme)]


def _named(scheme: str, host: str, port: int) -> str:
    """Return a host as `SecretHeader` names it."""
    return host if (scheme, port) == ("https", 443) else f"{host}:{port}"


@dataclass(frozen=True)
class RegistryTunnels:
    """Takes the place of hosts with a secret header: requests to them are forwarded with it.

    TLS ends here, by certificates of an authority of its own, which only those trust that have its certificate.
    """

    hosts: HostRequests
    _authority: trustme.CA = field(default_factory=trustme.CA)

    @property
    def authority(self) -> str | None:
        """The certificate of the authority, in PEM; None if no host has a header."""
        return self._authority.cert_pem.bytes().decode() if self.hosts.headers else None

    def host(self, scheme: str, host: str, port: int) -> str | None:
        """Return the name of a host that has a header; None for others."""
        named = _named(scheme, host, port)
        return named if any((one.host, one.scheme) == (named, scheme) for one in self.hosts.headers) else None

    async def connect(self, session: SandboxGatewaySession, host: str) -> Streams:
        """Return a connection on which requests to the host that only read are answered. Raises `OSError`."""

        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            if request.method not in _READING:  # a build may not publish packages by the user's password
                session.refusals.add(f"{request.method} {host}", "builds read registries, and write nothing to them")
                return failure(405, "invalid_request_error", "builds only read from a registry with a password")
            return await self.hosts.answer(request, session, host, request.raw_path)

        log = ServerLog(session.faulty)
        server = web.Server(answer, handler_cancellation=True, access_log=None, auto_decompress=False, logger=log)
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        await asyncio.get_running_loop().connect_accepted_socket(server, theirs)
        return await asyncio.open_connection(sock=ours)

    def context(self, host: str) -> ssl.SSLContext:
        """Return the context with which TLS of a connection to the host ends here."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._authority.issue_cert(host).configure_cert(context)
        return context
