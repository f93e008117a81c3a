"""Limit how fast sandboxes are started, and slow down while starts fail."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from evolverpc_common.rate_limiter import RateLimiter

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0


class StartLimits:
    """Limits starts to `per_s` in a second (always at least one), and slows down after failures.

    After a failure one start is tried at a time, each after twice the last pause, until one succeeds. Starts that ran
    together and fail for the same reason are one failure: `in_a_row` counts starts that began after the last one.
    """

    def __init__(self, per_s: float, *, first_pause_s: float = FIRST_PAUSE_S) -> None:
        self.in_a_row = 0
        self.first_error: Exception | None = None
        self._first_pause_s = first_pause_s
        count = max(1, int(per_s))
        self._limiter = RateLimiter(count, count / per_s)
        self._alone = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def attempt(self) -> AsyncIterator[int]:
        """Wait until a start may begin, which runs in the block; yields the argument for `failed`."""
        while True:
            failures = self.in_a_row
            async with self._alone if failures else contextlib.nullcontext():
                await self._limiter.wait()
                if failures == self.in_a_row:
                    yield failures
                    return

    def hold(self, seconds: float) -> None:
        """Begin no further start for so many seconds."""
        self._limiter.hold(seconds)

    def succeeded(self) -> None:
        """Record a successful start."""
        self.in_a_row, self.first_error = 0, None

    def failed(self, failures: int, error: Exception) -> bool:
        """Record a failed start. `failures`: what `attempt` yielded. Return whether the failure is new."""
        if failures != self.in_a_row:
            return str(error) != str(self.first_error)
        self.in_a_row += 1
        self.first_error = self.first_error or error
        self.hold(min(LONGEST_PAUSE_S, self._first_pause_s * 2.0**failures))
        return True

    @property
    def pause_s(self) -> float:
        """Seconds until the next start may begin."""
        return self._limiter.held_s
