"""A gateway in front of a stub provider, and sandboxes that ask it."""

import contextlib
import io
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

from sandbox_runtime.api.spec import Closed, Egress
from sandbox_runtime.gateway import (
    CapReached,
    Gateway,
    GatewayEvent,
    GatewayPolicy,
    GatewayRefusal,
    HostConnection,
    Provider,
    ProviderCall,
    anthropic,
    openai,
)
from sandbox_runtime.gateway.gateway_session import SandboxGatewaySession
from tests.sandbox_runtime.gateway.stub_provider import KEY, StubProvider

ASKED = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1000}
PRICED = {"m": (1.0, 1.0)}


@dataclass
class Recorded:
    """The events that the gateway reported."""

    events: list[GatewayEvent] = field(default_factory=list)
    calls = property(lambda self: self._of(ProviderCall))
    refusals = property(lambda self: self._of(GatewayRefusal))
    connections = property(lambda self: self._of(HostConnection))
    caps = property(lambda self: self._of(CapReached))

    def _of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


@dataclass
class Sandbox:
    """A sandbox that calls the gateway: with its own token, at these addresses."""

    session: SandboxGatewaySession
    models: str
    tunnel: str

    @property
    def token(self) -> str:
        return self.session.env(self.models, self.tunnel)["OPENAI_API_KEY"]

    def post(self, path: str, http: aiohttp.ClientSession, body: Any = None, **options: Any) -> Any:
        """A request as a program sends it; used by `async with`."""
        options.setdefault("headers", {"Authorization": f"Bearer {self.token}"})
        options.setdefault("data" if isinstance(body, bytes | io.BytesIO) else "json", ASKED if body is None else body)
        return http.post(self.models + path, **options)

    def chat(self, http: aiohttp.ClientSession, body: Any = None, **options: Any) -> Any:
        return self.post("/openai/v1/chat/completions", http, body, **options)


@pytest.fixture
async def provider() -> AsyncIterator[StubProvider]:
    async with StubProvider() as stub:
        yield stub


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    """A program's client."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
        yield session


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


Opens = Callable[..., contextlib.AbstractAsyncContextManager[Gateway]]


@pytest.fixture
def opened(provider: StubProvider, recorded: Recorded) -> Opens:
    """Opens a gateway to the stub provider as OpenAI and as Anthropic."""

    def make(
        policy: GatewayPolicy | None = None, providers: Sequence[Provider] | None = None, **options: Any
    ) -> Gateway:
        return Gateway(
            providers=providers or (openai(KEY, f"{provider.url}/v1"), anthropic(KEY, provider.url)),
            policy=policy or GatewayPolicy(prices=PRICED),
            report=recorded.events.append,
            **options,
        )

    return make


async def sandbox(gateway: Gateway, egress: Egress | None = None, name: str = "sandbox-1", **options: Any) -> Sandbox:
    """One with listening sockets of its own, as where it has a network of its own."""
    session = gateway.open_session(name, egress or Closed(), **options)
    models, tunnel = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
    urls = [f"http://127.0.0.1:{served.getsockname()[1]}" for served in (models, tunnel)]
    await session.serve(models, tunnel)
    return Sandbox(session, *urls)


@pytest.fixture
async def one(opened: Opens) -> AsyncIterator[Sandbox]:
    """A sandbox that reaches the models alone."""
    async with opened() as gateway:
        yield await sandbox(gateway)
