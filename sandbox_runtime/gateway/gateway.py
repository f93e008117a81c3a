"""The gateway: the only connection of a run's sandboxes to models and hosts. API keys stay on its side."""

import asyncio
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import aiohttp
from aiohttp import web

from evolverpc_common.network_addresses import Network
from sandbox_runtime.api.spec import Egress
from sandbox_runtime.gateway.connect_proxy import ConnectProxy, Resolve, system_resolver
from sandbox_runtime.gateway.events import CapReached, RefusalLog, Report
from sandbox_runtime.gateway.gateway_session import (
    CONNECTIONS,
    HOST_PATH,
    TUNNELS,
    HttpFrontend,
    Listener,
    SandboxGatewaySession,
)
from sandbox_runtime.gateway.model_requests import ModelRequests
from sandbox_runtime.gateway.package_registries import RegistryTunnels
from sandbox_runtime.gateway.providers import Provider, SecretHeader, check_together
from sandbox_runtime.gateway.request_policy import GatewayPolicy
from sandbox_runtime.gateway.spend_cap import SpendCap
from sandbox_runtime.gateway.upstream import HostRequests, provider_session

SHARED = 1024
"""Connections at once on the socket that all sandboxes share."""


@dataclass(frozen=True)
class GatewayPorts:
    """The gateway's own socket on loopback, for the models of sandboxes elsewhere. Port 0: any.

    `public_models_url`: the address at which a forwarder makes it reachable from there.
    """

    models_port: int = 0
    public_models_url: str | None = None


@dataclass(kw_only=True, eq=False)
class Gateway:
    """Serves all sandboxes of a run, in the event loop of its `async with` block.

    `report` is called in that loop with what happens, and must return soon. `listen`: None if it is reached through
    `GatewaySession.serve` alone. `resolve`: resolves names, by default with the system's resolver. `secret_headers`:
    headers that it sets in requests to hosts, which every sandbox may send, of any egress. `tls`: how their
    certificates are checked, by default as the system does. `registry_headers`: headers that it sets in requests
    through the proxy, to hosts that the egress allows. `allowed_networks`: besides the public ones, where these
    hosts and the providers may be by name; None for all. `holds_model_calls`: calls to models are held until
    `release_model_calls`.

    Raises:
        ValueError: two providers have the same name, or two secret headers the same host and header or the variable of
            two hosts.
        OSError: the port of `listen` is taken; when the block is entered.
    """

    providers: Sequence[Provider]
    policy: GatewayPolicy
    report: Report
    secret_headers: Sequence[SecretHeader] = ()
    registry_headers: Sequence[SecretHeader] = ()
    tls: ssl.SSLContext | None = None
    listen: GatewayPorts | None = None
    resolve: Resolve | None = None
    allowed_networks: Sequence[Network] | None = None
    holds_model_calls: bool = False

    def __post_init__(self) -> None:
        if len({provider.name for provider in self.providers}) < len(self.providers):
            raise ValueError("two providers have the same name")
        check_together(self.secret_headers)
        self.spend = SpendCap(self.policy.cap_usd, lambda: self.report(CapReached()))
        self._released = asyncio.Event()
        if not self.holds_model_calls:
            self._released.set()
        self._sessions: list[SandboxGatewaySession] = []
        self._shared: Listener | None = None
        self._models_url: str | None = None
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Open the gateway's own socket, if it has one."""
        if self.listen is not None:
            shared = socket.create_server(("127.0.0.1", self.listen.models_port), backlog=SHARED)
            front = HttpFrontend(self._session_of, _unattributed, self._answer)
            self._shared = Listener(shared, SHARED, front.connect)
            self._models_url = self.listen.public_models_url or f"http://127.0.0.1:{self._shared.port}"
        self._http = provider_session(self.allowed_networks)
        self._models = ModelRequests(self.providers, self.policy, self.spend, self._http, self.report, self._released)
        self._hosts = HostRequests(self.secret_headers, self._http, self.tls, self.report)
        self._registries = RegistryTunnels(HostRequests(self.registry_headers, self._http, self.tls, _unreported))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close every session, then everything else."""
        for session in tuple(self._sessions):
            await session.close()
        if self._shared is not None:
            await self._shared.close()
        if self._http is not None:
            await self._http.close()
            self._http = None

    def release_model_calls(self) -> None:
        """Answer calls to models from now on, those that are held first."""
        self._released.set()

    def open_session(
        self, sandbox_name: str, egress: Egress, *, opened_by: str = "allow_hosts"
    ) -> SandboxGatewaySession:
        """Open a sandbox's session, with a token of its own.

        `opened_by`: the setting that refusals name for its egress. Raises `RuntimeError` if the gateway is not open.
        """
        if self._http is None:
            raise RuntimeError("the gateway is not open")
        refusals = RefusalLog(sandbox_name, self.report)
        session = SandboxGatewaySession(
            *(sandbox_name, egress, self.providers, self.secret_headers, refusals),
            *(self._serve, self._models_url, opened_by),
            authority=self._registries.authority,
        )
        self._sessions = [one for one in self._sessions if not one.closed] + [session]
        return session

    def _session_of(self, token: str) -> SandboxGatewaySession | None:
        # All are asked, whichever it is.
        return next(iter([session for session in self._sessions if session.find(token)]), None)

    def _serve(self, session: SandboxGatewaySession, models: socket.socket, tunnel: socket.socket) -> list[Listener]:
        front = HttpFrontend(session.find, session.faulty, self._answer)
        resolve = self.resolve or system_resolver()
        proxy = ConnectProxy(session.find, session.faulty, resolve, self.report, self._registries)
        return [Listener(models, CONNECTIONS, front.connect), Listener(tunnel, TUNNELS, proxy.connect)]

    async def _answer(self, request: web.BaseRequest, session: SandboxGatewaySession) -> web.StreamResponse:
        asked = HOST_PATH.fullmatch(request.raw_path)
        if asked is not None:
            return await self._hosts.answer(request, session, asked["host"], asked["rest"] or "/")
        return await self._models.answer(request, session)


def _unattributed(_what: str) -> None:
    """Ignore a faulty request on the socket of all sandboxes: it belongs to none of them."""


def _unreported(_what: object) -> None:
    """Report nothing of a request in a tunnel: the tunnel itself is reported."""
