"""The gateway: the only connection of a run's sandboxes to models and hosts. API keys stay on its side."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import aiohttp
from aiohttp import web

from evolverpc_common.model_prices import PriceTable
from evolverpc_common.network_addresses import Network
from sandbox_runtime.api.spec import Egress
from sandbox_runtime.gateway.connect_proxy import ConnectProxy, Resolve, system_resolver
from sandbox_runtime.gateway.events import GatewayRefusal, HostConnection, ProviderCall, RefusalLog
from sandbox_runtime.gateway.gateway_session import (
    CONNECTIONS,
    HOST_PATH,
    TUNNELS,
    HttpFrontend,
    Listener,
    SandboxGatewaySession,
)
from sandbox_runtime.gateway.model_requests import ModelRequests
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


class Gateway:
    """Serves all sandboxes of a run, in the event loop of its `async with` block.

    `on_call`, `on_refusal` and `on_connection` are called for each in that loop and must return soon. `on_cap` is
    called once when the cap is reached; from then on calls are held, not refused, until their session closes.
    `listen`: None if it is reached through `GatewaySession.serve` alone. `resolve`: resolves names, by default with the
    system's resolver. `secret_headers`: headers that it sets in requests to hosts, which every sandbox may send,
    of any egress. `tls`: how their certificates are checked, by default as the system does. `allowed_networks`: besides
    the public ones, where these hosts and the providers may be by name; None for all.
    `holds_model_calls`: calls to models are held until `release_model_calls`.

    Raises:
        ValueError: two providers have the same name, or two secret headers the same host and header or the variable of
            two hosts.
        OSError: the port of `listen` is taken; when the block is entered.
    """

    def __init__(
        self,
        *,
        providers: Sequence[Provider],
        policy: GatewayPolicy,
        on_call: Callable[[ProviderCall], None],
        on_refusal: Callable[[GatewayRefusal], None],
        on_cap: Callable[[], None],
        on_connection: Callable[[HostConnection], None] = lambda _connection: None,
        secret_headers: Sequence[SecretHeader] = (),
        tls: ssl.SSLContext | None = None,
        listen: GatewayPorts | None = None,
        resolve: Resolve | None = None,
        allowed_networks: Sequence[Network] | None = None,
        holds_model_calls: bool = False,
    ) -> None:
        if len({provider.name for provider in providers}) < len(providers):
            raise ValueError("two providers have the same name")
        check_together(secret_headers)
        self._secret_headers, self._tls = tuple(secret_headers), tls
        self._providers = tuple(providers)
        self._policy = policy
        self._on_call = on_call
        self._on_refusal = on_refusal
        self._on_connection = on_connection
        self._listen = listen
        self._resolve = resolve
        self._allowed_networks = allowed_networks
        self.spend = SpendCap(policy.cap_usd, on_cap)
        self._released = asyncio.Event()
        if not holds_model_calls:
            self._released.set()
        self._sessions: list[SandboxGatewaySession] = []
        self._shared: Listener | None = None
        self._models_url: str | None = None
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Open the gateway's own socket, if it has one."""
        listen = self._listen
        shared = None
        if listen is not None:
            shared = socket.create_server(("127.0.0.1", listen.models_port), backlog=SHARED)
        self._http = provider_session(self._allowed_networks)
        self._models = ModelRequests(
            self._providers,
            self._policy,
            PriceTable(self._policy.prices),
            self.spend,
            self._http,
            self._on_call,
            self._released,
        )
        self._hosts = HostRequests(self._secret_headers, self._http, self._tls, self._on_connection)
        if shared is not None and listen is not None:
            front = HttpFrontend(self._session_of, _unattributed, _unattributed, self._answer)
            self._shared = Listener(shared, SHARED, front.connect)
            self._models_url = listen.public_models_url or f"http://127.0.0.1:{self._shared.port}"
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
        refusals = RefusalLog(sandbox_name, self._on_refusal)
        session = SandboxGatewaySession(
            *(sandbox_name, egress, self._providers, self._secret_headers, refusals),
            *(self._serve, self._models_url, opened_by),
        )
        self._sessions = [one for one in self._sessions if not one.closed] + [session]
        return session

    def _session_of(self, token: str) -> SandboxGatewaySession | None:
        # All are asked, whichever it is.
        return next(iter([session for session in self._sessions if session.knows(token)]), None)

    def _serve(self, session: SandboxGatewaySession, models: socket.socket, tunnel: socket.socket) -> list[Listener]:
        front = HttpFrontend(session.find, session.wrong_token, session.malformed, self._answer)
        proxy = ConnectProxy(session.find, session.wrong_token, self._resolve or system_resolver(), self._on_connection)
        return [Listener(models, CONNECTIONS, front.connect), Listener(tunnel, TUNNELS, proxy.connect)]

    async def _answer(self, request: web.BaseRequest, session: SandboxGatewaySession) -> web.StreamResponse:
        asked = HOST_PATH.fullmatch(request.raw_path)
        if asked is not None:
            return await self._hosts.answer(request, session, asked["host"], asked["rest"] or "/")
        return await self._models.answer(request, session)


def _unattributed() -> None:
    """Ignore a wrong token or malformed request on the socket of all sandboxes: it belongs to none of them."""
