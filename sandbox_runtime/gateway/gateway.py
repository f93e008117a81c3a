"""The gateway: the only way out of every sandbox of a run. Keys stay on this side of it."""

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import aiohttp

from sandbox_runtime.api.egress import Egress
from sandbox_runtime.gateway.calls import ModelCall, Refusal
from sandbox_runtime.gateway.forward import Forward, session
from sandbox_runtime.gateway.front import Front
from sandbox_runtime.gateway.listener import Listener
from sandbox_runtime.gateway.models import Models
from sandbox_runtime.gateway.passage import CONNECTIONS, TUNNELS, GatewayPassage
from sandbox_runtime.gateway.policy import Policy
from sandbox_runtime.gateway.prices import Prices
from sandbox_runtime.gateway.providers import Provider
from sandbox_runtime.gateway.refusals import Refusals
from sandbox_runtime.gateway.resolving import Resolve, Resolver
from sandbox_runtime.gateway.spend import Spend
from sandbox_runtime.gateway.tunnel import Tunnel

SHARED = 1024
"""Connections at once on a socket of the gateway's own, over all sandboxes."""


@dataclass(frozen=True)
class Listen:
    """Sockets of the gateway's own, on loopback, for sandboxes that have no network of their own. Ports: 0: any.

    `public_models_url`, `public_tunnel_url`: where a forwarder makes them reachable from elsewhere.
    """

    models_port: int = 0
    tunnel_port: int = 0
    public_models_url: str | None = None
    public_tunnel_url: str | None = None


class Gateway:
    """Used in an `async with` block, whose event loop serves all of it.

    `on_call`, `on_refusal`: hear of each, in that loop, and return soon. `on_cap`: hears once that the cap is reached;
    from then on calls are held, not refused, until their passage closes. `listen`: None: it is reached through
    `Passage.serve` alone. `resolve`: names to addresses; the system's unless given.

    Raises:
        ValueError: two providers have one name.
        OSError: a port of `listen` is taken; from entering the block.
    """

    def __init__(
        self,
        *,
        providers: Sequence[Provider],
        policy: Policy,
        on_call: Callable[[ModelCall], None],
        on_refusal: Callable[[Refusal], None],
        on_cap: Callable[[], None],
        listen: Listen | None = None,
        resolve: Resolve | None = None,
    ) -> None:
        if len({provider.name for provider in providers}) < len(providers):
            raise ValueError("two providers have the same name")
        self._providers = tuple(providers)
        self._policy = policy
        self._on_call = on_call
        self._on_refusal = on_refusal
        self._listen = listen
        self._given = resolve
        self._spend = Spend(policy.cap_usd, on_cap)
        self._passages: list[GatewayPassage] = []
        self._listeners: list[Listener] = []
        self._urls: tuple[str | None, str | None] = (None, None)
        self._http: aiohttp.ClientSession | None = None
        self._resolver: Resolver | None = None

    @property
    def spent_usd(self) -> float:
        """What calls that are over were counted as, US dollars."""
        return self._spend.spent_usd

    @property
    def elsewhere_usd(self) -> float:
        """What else the run has spent, US dollars; it counts against the cap. To be set in this loop, as it grows."""
        return self._spend.elsewhere_usd

    @elsewhere_usd.setter
    def elsewhere_usd(self, usd: float) -> None:
        self._spend.elsewhere_usd = usd

    async def __aenter__(self) -> Self:
        """Open its own sockets, where it has any."""
        sockets = _bound(self._listen) if self._listen is not None else None
        self._http = session()
        self._resolver = Resolver()
        self._resolve = self._given or self._resolver
        forward = Forward(self._http, self._on_call)
        self._models = Models(self._providers, self._policy, Prices(self._policy.prices), self._spend, forward)
        if sockets is not None and self._listen is not None:
            self._listeners = self._serve_all(*sockets)
            models, tunnel = (f"http://127.0.0.1:{listener.port}" for listener in self._listeners)
            self._urls = (self._listen.public_models_url or models, self._listen.public_tunnel_url or tunnel)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close every passage, then everything else."""
        for passage in tuple(self._passages):
            await passage.close()
        for listener in self._listeners:
            await listener.close()
        if self._resolver is not None:
            self._resolver.close()
        if self._http is not None:
            await self._http.close()
            self._http = None

    def passage(self, sandbox_name: str, egress: Egress, *, opened_by: str = "allow_hosts") -> GatewayPassage:
        """A sandbox's way out, with a token of its own. `opened_by`: the setting that refusals name, for its egress.

        Raises:
            RuntimeError: outside of the block.
        """
        if self._http is None:
            raise RuntimeError("the gateway is not open")
        refusals = Refusals(sandbox_name, self._on_refusal)
        passage = GatewayPassage(sandbox_name, egress, self._providers, refusals, self._serve, self._urls, opened_by)
        self._passages = [one for one in self._passages if not one.closed] + [passage]
        return passage

    def _whose(self, token: str) -> GatewayPassage | None:
        # All are asked, whichever it is.
        return next(iter([passage for passage in self._passages if passage.knows(token)]), None)

    def _serve(self, passage: GatewayPassage, models: socket.socket, tunnel: socket.socket) -> list[Listener]:
        front = Front(passage.mine, passage.stranger, passage.malformed, self._models.answer)
        proxy = Tunnel(passage.mine, passage.stranger, self._resolve, self._policy.ports)
        return [Listener(models, CONNECTIONS, front.connect), Listener(tunnel, TUNNELS, proxy.connect)]

    def _serve_all(self, models: socket.socket, tunnel: socket.socket) -> list[Listener]:
        front = Front(self._whose, _nobody, _nobody, self._models.answer)
        proxy = Tunnel(self._whose, _nobody, self._resolve, self._policy.ports)
        return [Listener(models, SHARED, front.connect), Listener(tunnel, SHARED, proxy.connect)]


def _nobody() -> None:
    """A wrong token or malformed request on a socket of all sandboxes cannot be attributed to one."""


def _bound(listen: Listen) -> tuple[socket.socket, socket.socket]:
    models = socket.create_server(("127.0.0.1", listen.models_port), backlog=SHARED)
    try:
        return models, socket.create_server(("127.0.0.1", listen.tunnel_port), backlog=SHARED)
    except OSError:
        models.close()
        raise
