"""How long calls have waited for an endpoint while none was up, and when that is too long."""

import asyncio
import time
from collections.abc import Callable

from gepa_client.fleet.fleet_events import FleetEvent


class Outage:
    """The clock that runs while a call waits and no endpoint is up; an outage that nobody notices costs nothing.

    An overloaded endpoint that comes back does not set it back, a call that was taken does: a server that refuses
    everything for ever is an outage too. `last_error`: what an endpoint did last that it should not.
    `on_outage(words)`: the clock has reached `max_outage_s`.
    """

    def __init__(
        self, max_outage_s: float, on_event: Callable[[FleetEvent], None], on_outage: Callable[[str], None]
    ) -> None:
        self.last_error = ""
        self._max_outage_s = max_outage_s
        self._on_event = on_event
        self._on_outage = on_outage
        self._waited_s = 0.0
        self._resumed = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._told = False

    def run(self) -> None:
        """A call waits, and no endpoint is up."""
        if self._timer is None:
            self._resumed = time.monotonic()
            remaining_s = max(self._max_outage_s - self._waited_s, 0.0)
            self._timer = asyncio.get_running_loop().call_later(remaining_s, self._reached)

    def suspend(self) -> None:
        """An endpoint is up, or nobody waits, or the fleet closes."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._waited_s += time.monotonic() - self._resumed

    def over(self) -> None:
        """An endpoint takes calls again."""
        self.suspend()
        self._waited_s = 0.0

    def tell(self) -> None:
        """A call waits for any endpoint at all; said once in an outage."""
        if not self._told:
            self._told = True
            self._on_event(FleetEvent("waiting", None, f"no endpoint is left{self._why()}", self._max_outage_s))

    def told_over(self) -> None:
        """The next outage is told of again."""
        self._told = False

    def _reached(self) -> None:
        waited_s = self._waited_s + time.monotonic() - self._resumed
        self._on_outage(f"no endpoint left for {waited_s:.3g} s{self._why()}")

    def _why(self) -> str:
        return f"; last error: {self.last_error}" if self.last_error else ""
