"""Limit how many operations start in a period, for threads and for asyncio tasks."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable


class RateExceeded(Exception):
    """The operation would have to wait too long. `retry_after_s`: seconds until it could start."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(f"too many calls: try again in {retry_after_s:.0f} s")
        self.retry_after_s = retry_after_s


class RateLimiter:
    """Allow at most `count` starts in any `seconds` (a sliding window); `count` None allows any number.

    Threads call `reserve`; tasks of one event loop call `wait`. `clock` returns seconds.
    """

    def __init__(
        self, count: int | None, seconds: float = 60.0, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._count = count
        self._seconds = seconds
        self._clock = clock
        self._starts: deque[float] = deque(maxlen=count)
        self._lock = threading.Lock()
        self._queue = asyncio.Lock()  # serves its waiters in order of arrival

    def reserve(self) -> float:
        """Reserve the next start and return the seconds until it may happen."""
        with self._lock:
            now = self._clock()
            delay_s = self._delay_s(now)
            self._starts.append(now + delay_s)
            return delay_s

    async def wait(self, max_wait_s: float | None = None) -> None:
        """Wait until the operation may start. A cancelled wait uses up no start.

        Raises:
            RateExceeded: it may not after `max_wait_s` seconds; None waits without a limit.
        """
        try:
            async with asyncio.timeout(max_wait_s), self._queue:
                while (delay_s := self._delay_s(self._clock())) > 0:  # noqa: ASYNC110  only time ends it
                    await asyncio.sleep(delay_s)
                self._starts.append(self._clock())
        except TimeoutError:
            raise RateExceeded(self._delay_s(self._clock())) from None

    def _delay_s(self, now: float) -> float:
        if self._count is None:
            return 0.0
        free_at = self._starts[0] + self._seconds if len(self._starts) == self._count else now
        return max(0.0, free_at - now)
