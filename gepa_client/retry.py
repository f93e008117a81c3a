"""When a call is tried again: the same call where its outcome is unknown, a new one where it was nobody's verdict."""

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gepa_client.causes import summary
from gepa_client.errors import ConnectionLost, InstanceChanged, Interrupted
from protocol.errors import CallNotFound, Overloaded, RpcError

T = TypeVar("T")

FIRST_BACKOFF_S = 0.5
BACKOFF_FACTOR = 3  # a hiccup costs half a second, yet five attempts outlast many a rate limit


class NoVerdict(Exception):
    """The call was answered, but with `infra_error` or `cancelled` for an example: not a result, to be tried again."""


@dataclass(frozen=True)
class Retries:
    """How often one thing is tried before the run pauses, and how long to wait in between.

    `max_attempts`: calls in all, the first included. `first_backoff_s`: the mean wait after the first failure, three
    times as long after each further one. `on_lost(attempt, max_attempts)`: told of the attempt that follows a lost
    connection, on the event loop's thread.
    """

    max_attempts: int = 5
    first_backoff_s: float = FIRST_BACKOFF_S
    on_lost: Callable[[int, int], None] | None = None
    _random: random.Random = field(default_factory=random.SystemRandom, repr=False)  # never GEPA's global generator

    async def run(self, what: str, attempt: Callable[[str, int], Awaitable[T]]) -> T:
        """Await `attempt(call_id, number)` until it gives a result.

        Raises:
            Interrupted: `paused`, after `max_attempts` without a result; names `what` and the last error.
            RpcError, ClientError: what no repetition can change, as it came.
        """
        call_id = uuid.uuid4().hex
        for number in range(1, self.max_attempts + 1):
            try:
                return await attempt(call_id, number)
            except (ConnectionLost, NoVerdict, RpcError) as error:
                if isinstance(error, RpcError) and not (error.retryable or isinstance(error, CallNotFound)):
                    raise
                if number == self.max_attempts:
                    lost = "server lost, " if isinstance(error, ConnectionLost) else ""
                    raise Interrupted(
                        "paused", f"{lost}{what}: no result after {number} attempts; last error: {summary(error)}"
                    ) from error
                if isinstance(error, ConnectionLost) and self.on_lost is not None:
                    self.on_lost(number + 1, self.max_attempts)
                if not isinstance(error, ConnectionLost) or isinstance(error, InstanceChanged):
                    call_id = uuid.uuid4().hex  # the outcome is known: this call will never have another
                await asyncio.sleep(self._pause_s(number, error))
        raise AssertionError("max_attempts is at least 1")

    def _pause_s(self, number: int, error: Exception) -> float:
        backoff = self.first_backoff_s * BACKOFF_FACTOR ** (number - 1) * self._random.uniform(0.75, 1.25)
        return float(max(backoff, _asked_pause_s(error)))


def _asked_pause_s(error: Exception) -> float:
    """Seconds an overloaded server asked us to stay away, at most a minute."""
    asked: Any = error.details.get("retry_after_s") if isinstance(error, Overloaded) else None
    return min(float(asked), 60.0) if isinstance(asked, int | float) and asked > 0 else 0.0
