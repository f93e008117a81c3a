"""Spaces requests evenly over time, however many threads make them, and ends every wait when the run must stop."""

import threading
import time

from evolverpc_common.rate_limiter import RateLimiter
from gepa_client.transport.cancel_token import Halt


class Pace:
    """Turns at equal distances: at most `per_minute` requests begin in any minute, never two at once.

    `per_minute`: None for no limit. `halt`: once it is pulled, whoever waits or comes raises its reason.
    """

    def __init__(self, per_minute: float | None = None, halt: Halt | None = None) -> None:
        self._limiter = None if per_minute is None else RateLimiter(1, 60.0 / per_minute)
        self._halt = Halt() if halt is None else halt
        self._halted = threading.Event()
        self._halt.listen(lambda _: self._halted.set())

    def turn(self) -> None:
        """Wait until the next request may begin; threads take turns in the order they come.

        Raises:
            Interrupted: the run must stop.
        """
        self._wait_until(time.monotonic() + (0.0 if self._limiter is None else self._limiter.reserve()))

    def pause(self, seconds: float) -> None:
        """Wait before a request is repeated; it needs a turn of its own afterwards. Raises as `turn`."""
        self._wait_until(time.monotonic() + seconds)

    def _wait_until(self, at: float) -> None:
        while (left := at - time.monotonic()) > 0 and not self._halted.wait(left):
            pass
        self._halt.check()
