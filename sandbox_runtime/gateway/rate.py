"""Calls per minute, in order of arrival: each waits for its turn, or is told when to come again."""

import asyncio
from collections import deque
from collections.abc import Callable

MINUTE = 60.0


class TooFast(Exception):
    """The turn would come too late. `retry_after_s`: when it would."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(f"too many calls: try again in {retry_after_s:.0f} s")
        self.retry_after_s = retry_after_s


class Rate:
    """At most `calls` in any `seconds`, over all who ask."""

    def __init__(
        self, calls: int | None, wait_s: float, *, seconds: float = MINUTE, clock: Callable[[], float] | None = None
    ) -> None:
        self._calls = calls
        self._wait_s = wait_s
        self._seconds = seconds
        self._clock = clock
        self._started: deque[float] = deque()
        self._waiting = 0
        self._turn = asyncio.Lock()  # whose waiters are served in order of arrival

    async def turn(self) -> None:
        """Until the call may start.

        Raises:
            TooFast: that would take longer than a call waits.
        """
        if self._calls is None:
            return
        expected = self._expected(self._calls)
        if expected > self._wait_s:
            raise TooFast(expected)
        self._waiting += 1
        try:
            async with self._turn:
                while (wait := self._until(self._calls)) > 0:  # noqa: ASYNC110  nothing but time brings it
                    await asyncio.sleep(wait)
                self._started.append(self._now())
        finally:
            self._waiting -= 1

    def _until(self, calls: int) -> float:
        now = self._now()
        while self._started and self._started[0] <= now - self._seconds:
            self._started.popleft()
        return self._started[0] + self._seconds - now if len(self._started) >= calls else 0.0

    def _expected(self, calls: int) -> float:
        """How long one that comes now would wait behind those that do already."""
        self._until(calls)
        behind = len(self._started) + self._waiting - calls
        if behind < 0:
            return 0.0
        rounds, place = divmod(behind, calls)
        first = self._started[place] if place < len(self._started) else self._now()
        return first + (rounds + 1) * self._seconds - self._now()

    def _now(self) -> float:
        return self._clock() if self._clock is not None else asyncio.get_running_loop().time()
