"""A call as data: what to ask a server, how long to wait, how to read the answer, and what the attempt cost."""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from protocol import JsonValue, Progress

T = TypeVar("T")

CALL_TIMEOUT_S = 600.0
"""Seconds for a call that runs no examples: a reflective dataset, proposals, the end of a run."""

UNLIMITED_EXAMPLE_S = 600.0
"""Seconds to wait for one example of a server that states no limit of its own."""

ATTEMPTS = 3
"""How often an example's own limit may pass within one call: servers run an example again, alone, if others may have
delayed it or ended its process, and examples that wait for the same process come first."""

QUEUE_ALLOWANCE_S = 60.0
"""Seconds beyond the examples' own limits that a call may wait behind the calls of other clients."""

INCONCLUSIVE = ("infra_error", "cancelled")
"""Statuses of examples that must be tried again."""


@dataclass
class Reply(Generic[T]):
    """A parsed answer, and the attempt that brought it.

    `outcome`: the result's status. `seconds`: as the server reports. `usage`: the contract's `Usage`, None if the
    server reports none. `examples`: how many results came; `unpriced`: how many of them without a `cost_usd`.
    `instance`: the server process that answered. `endpoint`: its URL, from a fleet.
    """

    value: T
    outcome: str = "ok"
    seconds: float | None = None
    usage: dict[str, Any] | None = None
    examples: int = 1
    unpriced: int = 0
    instance: str | None = None
    endpoint: str | None = None


@dataclass(frozen=True)
class FailedTry:
    """An example of a call that was `infra_error` and is tried again.

    `at`: its place in the call; `row`: its id. `host`: that failed, None if the server names none; `reason`: how.
    """

    at: int
    row: str
    host: str | None
    reason: str


@dataclass(frozen=True)
class FailureCost:
    """What an attempt without a result cost. `unpriced`: 1 if it may have cost an amount that is not known."""

    usage: dict[str, Any] | None = None
    unpriced: int = 0


@dataclass(frozen=True)
class Call(Generic[T]):
    """One call, to whichever server answers it.

    `method`, `params`: as the contract defines them. `parse`: turns the result into a `Reply`, or raises `BadResponse`.
    `parse_error`: the reply that an error amounts to, given the error and the seconds since sending; None if the error
    is an error.
    `about`: names the call in error messages, as in `example 'x'`. `needs`: a capability without which no server can
    answer. `timeout_s`: the deadline in seconds; for a call that runs examples, their limits decide.
    `rows`: the ids of the examples that it runs, whose results are the value of its reply, in order; it is made again
    for those that are `INCONCLUSIVE`.
    `group`: the contract's `_meta.group`, for servers with the capability `refs`. `optional`: params that only servers
    with a capability understand, with its name. `instance_params`: further params for the server process that is about
    to answer (capability `adapter_state`), by its `instance_id`.
    `request`: the digests of the candidate and the row that it evaluates for a request of the journal, of its first
    ones if there are several.
    `failure_cost`: the cost of an attempt without a result, given its last error and its outcome.
    `probe`: given rows, the call of another row that has its result, and its log; None if there is none.
    `on_sent`: called before each sending; `on_progress`: called about once a second while the server reports progress.
    """

    method: str
    params: Mapping[str, Any]
    parse: Callable[[JsonValue], Reply[T]]
    about: str
    needs: str | None = None
    timeout_s: float = CALL_TIMEOUT_S
    rows: Sequence[str] = ()
    group: str | None = None
    request: tuple[str, str] | None = None
    optional: Mapping[str, str] = field(default_factory=dict)
    instance_params: Callable[[str | None], Mapping[str, Any]] | None = None
    parse_error: Callable[[Exception, float], Reply[T] | None] | None = None
    failure_cost: Callable[[Exception | None, str], FailureCost] | None = None
    probe: "Callable[[Container[str]], tuple[Call[Any], AttemptLog] | None] | None" = None
    on_sent: Callable[[], None] | None = None
    on_progress: Callable[[Progress], None] | None = None


def evaluation_timeout_s(example_limit_s: float | None, examples: int) -> float:
    """Return the seconds to wait for an `evaluate` or `score` of so many examples, each at its limit."""
    return (example_limit_s or UNLIMITED_EXAMPLE_S) * ATTEMPTS * examples + QUEUE_ALLOWANCE_S


class AttemptLog(Protocol):
    """The attempts of one call, written before each is sent, so that a later process can collect what one brought."""

    def unfinished(self) -> tuple[str, str | None] | None:
        """Return (url, instance) of an attempt that an earlier process sent and never saw end."""

    async def start(self, url: str, instance: str | None, *, repeat: bool) -> str:
        """Write that an attempt is about to be sent, and return its call id once that is stored.

        `repeat`: the attempt before is sent again under its own id, to collect finished work. An error raised here ends
        the call; nothing was sent.
        """

    def finish(
        self,
        outcome: str,
        *,
        seconds: float | None = None,
        usage: dict[str, Any] | None = None,
        examples: int = 1,
        unpriced: int = 0,
        failed: Sequence[FailedTry] = (),
    ) -> None:
        """Write how the attempt ended; `failed`: the examples that are tried again.

        `outcome`: a result's status; or, without a result and with 0 `examples`, `lost` (unknown), `refused` (it never
        ran), `error` (an error response) or `cancelled` (by the caller). An attempt whose answer may still be collected
        when the call is interrupted stays open.
        """
