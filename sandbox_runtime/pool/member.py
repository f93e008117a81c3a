"""What a pool needs of a sandbox, and of whoever starts one."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from sandbox_runtime.api.endpoint import Endpoint
from sandbox_runtime.api.sandbox import Ended


class Member(Protocol):
    """A sandbox that is up and whose server answers; each method as in `Sandbox`."""

    @property
    def id(self) -> str:
        """What its runtime calls it."""
        ...

    async def endpoint(self) -> Endpoint:
        """Where its server answers, and with what. Raises `SandboxError`."""
        ...

    async def wait(self) -> Ended:
        """Until it has ended, however that comes."""
        ...

    async def close(self) -> None:
        """End it and free everything of it; safe to call twice, and shielded. Raises `SandboxError`."""
        ...


Start = Callable[[int], Awaitable[Member]]
"""Starts the sandbox of this number, from 0; raises `SandboxError`, and a cancellation leaves nothing of it."""
