"""The spend cap: send a call only while recorded spend plus the most that running calls may cost is below the cap."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

_DIGITS = 12  # of a dollar: sums of binary fractions differ from the exact sums beyond these


@dataclass
class Charge:
    """What one call is counted as at its end: nothing until it goes out."""

    counted_usd: float = 0.0


class SpendCap:
    """The spend of one run in US dollars.

    A call waits, in order of arrival, while the most that running calls may cost would reach the cap, and without end
    at the cap: a refusal would become a program failure with a score. So at most one call exceeds the cap, by its own
    cost.
    """

    def __init__(self, cap_usd: float | None, on_cap: Callable[[], None]) -> None:
        self.cap_usd = cap_usd
        self._on_cap = on_cap
        self._cap_reported = False
        self.spent_usd = 0.0
        """What finished calls were counted as."""
        self._elsewhere = 0.0
        self._reserved = 0.0
        self._line = asyncio.Lock()  # the first in it waits for room, and all others behind it
        self._changed = asyncio.Event()

    def run_spent(self, usd: float) -> None:
        """Take note of what the whole run has spent, calls through this gateway included. Call it in its loop."""
        # `usd` may be older than `spent_usd`, so that the difference can come out too small: the largest one counts.
        self._elsewhere = max(self._elsewhere, usd - self.spent_usd)
        self._look()

    def beyond(self, max_cost_usd: float) -> bool:
        """Return whether one call may cost more than the whole cap: by disconnecting, a program would end the run."""
        return self.cap_usd is not None and round(max_cost_usd, _DIGITS) > self.cap_usd

    @asynccontextmanager
    async def charge(self, max_cost_usd: float) -> AsyncIterator[Charge]:
        """Charge one call; the block is entered once the call may be sent."""
        charge = Charge()
        async with self._line:
            while not self._room():
                self._changed.clear()
                await self._changed.wait()
            self._reserved = round(self._reserved + max_cost_usd, _DIGITS)
        try:
            yield charge
        finally:
            self._reserved = round(self._reserved - max_cost_usd, _DIGITS)
            self.spent_usd = round(self.spent_usd + charge.counted_usd, _DIGITS)
            self._look()

    def _room(self) -> bool:
        return self.cap_usd is None or round(self.spent_usd + self._elsewhere + self._reserved, _DIGITS) < self.cap_usd

    def _look(self) -> None:
        self._changed.set()
        if self.cap_usd is not None and not self._cap_reported:
            self._cap_reported = round(self.spent_usd + self._elsewhere, _DIGITS) >= self.cap_usd
            if self._cap_reported:
                self._on_cap()
