"""What a pool reports, and what it needs of a sandbox and of the function that starts one."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from sandbox_runtime.api.sandbox import SandboxExit, ServerEndpoint

PoolEventKind = Literal[
    "starting",
    "ready",
    "failed",
    "unasked",
    "died",
    "retires",
    "ended",
    "not_freed",
    "grows",
    "shrinks",
    "gave_up",
]


@dataclass(frozen=True)
class PoolEvent:
    """One change, told on the pool's event loop; `ready` of the `wanted` sandboxes are up after it.

    `starting`: one is being started. `ready`: it is in the fleet file. `failed`: a start came to nothing, and another
    follows in `seconds`; told once of those that fail together for one reason. `unasked`: a server refused what the
    fleet file gives, and its endpoint could not be told anew. `died`: one that was up has ended by itself, and is
    replaced, in `seconds`. `retires`: it is no longer in the fleet file, as nobody needs it. `ended`: one that retired
    is freed. `not_freed`: something of one may be left, or of several where there is no `id`; a sweep ends it.
    `grows`, `shrinks`: there is work for more, or for fewer. `gave_up`: none is up and starting has failed too often in
    a row.

    `seconds`: of `ready` how long the start took. `elapsed_s`: since the pool began. `id`: the sandbox's, where it has
    one.
    """

    kind: PoolEventKind
    ready: int
    wanted: int
    detail: str = ""
    seconds: float | None = None
    id: str | None = None
    elapsed_s: float = 0.0


class PoolFailed(Exception):
    """None is up, and starting one has failed too often in a row; the cause is the first of these failures."""


class PooledSandbox(Protocol):
    """A sandbox that is up and whose server answers; each method as in `Sandbox`."""

    @property
    def id(self) -> str:
        """What its runtime calls it."""
        ...

    async def endpoint(self) -> ServerEndpoint:
        """Where its server answers, and with what. Raises `SandboxError`."""
        ...

    async def wait(self) -> SandboxExit:
        """Until it has ended, however that comes."""
        ...

    async def close(self) -> None:
        """End it and free everything of it; safe to call twice, and shielded. Raises `SandboxError`."""
        ...


StartSandbox = Callable[[int], Awaitable[PooledSandbox]]
"""Starts the sandbox of this number, from 0; raises `SandboxError`, and a cancellation leaves nothing of it."""
