"""The events of a pool, its failure, and the function that starts its sandboxes."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from sandbox_runtime.api.sandbox import RunningSandbox

PoolEventKind = Literal["ready", "failed", "unasked", "died", "not_freed", "grows", "shrinks", "gave_up"]


@dataclass(frozen=True)
class PoolEvent:
    """One change of a pool, reported on its event loop; `ready` of the `wanted` sandboxes run after it.

    `ready`: a sandbox is in the endpoints file. `failed`: a start failed and is repeated in `seconds`; reported once
    for starts that fail together for one reason. `unasked`: a server refused its token, and its endpoint could not be
    renewed. `died`: a sandbox ended by itself and is replaced in `seconds`. `not_freed`: something of one, or of
    several if there is no `id`, may be left; a sweep ends it. `grows`, `shrinks`: there is work for more, or for fewer;
    those that retire leave the endpoints file. `gave_up`: none runs and starts have failed too often in a row.

    `elapsed_s`: since the pool began. `id`: the sandbox's, if it has one.
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
