"""The events of a pool, its failure, and the function that starts its sandboxes."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from sandbox_runtime.api.sandbox import RunningSandbox

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
    """One change of a pool, reported on its event loop; `ready` of the `wanted` sandboxes run after it.

    `starting`: a start begins. `ready`: a sandbox is in the endpoints file. `failed`: a start failed and is repeated in
    `seconds`; reported once for starts that fail together for one reason. `unasked`: a server refused its token, and
    its endpoint could not be renewed. `died`: a sandbox ended by itself and is replaced in `seconds`. `retires`: it is
    no longer in the endpoints file, because it is not needed. `ended`: a retired one is freed. `not_freed`: something
    of one, or of several if there is no `id`, may be left; a sweep ends it. `grows`, `shrinks`: there is work for more,
    or for fewer. `gave_up`: none runs and starts have failed too often in a row.

    `seconds`: for `ready`, how long the start took. `elapsed_s`: since the pool began. `id`: the sandbox's, if it has
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
    """No sandbox runs, and starts have failed too often in a row; the cause is the first of these failures."""


StartSandbox = Callable[[int], Awaitable[RunningSandbox]]
"""Starts the sandbox of a number, from 0. Raises `SandboxError`; a cancellation leaves nothing behind."""
