"""A sandbox's way out, as its runtime sees it: the gateway's side of one sandbox."""

import socket
from collections.abc import Mapping
from typing import Protocol

MODELS_PORT = 8181
"""Where programs find the gateway's model providers, on loopback of a sandbox that has a network of its own."""

TUNNEL_PORT = 8182
"""Where they find its proxy (`CONNECT`)."""


class Passage(Protocol):
    """What one sandbox may use of the gateway; worth nothing to anybody else, and nothing once it is closed."""

    @property
    def models_url(self) -> str | None:
        """Where the gateway can be reached by itself, None where that is through `serve` alone."""
        ...

    @property
    def tunnel_url(self) -> str | None:
        """The same for its proxy."""
        ...

    async def serve(self, models: socket.socket, tunnel: socket.socket) -> None:
        """Answer on these listening sockets too, which are the sandbox's own loopback; they are the gateway's now."""
        ...

    def env(self, models_url: str, tunnel_url: str) -> Mapping[str, str]:
        """The variables by which programs find it at these addresses: `OPENAI_BASE_URL`, `HTTPS_PROXY`, ..."""
        ...

    async def close(self) -> None:
        """Nothing is answered any more, and what was under way is ended. Safe to call twice."""
        ...
