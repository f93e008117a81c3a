"""The spend cap: a call goes out only while all that was spent, and all that calls under way may cost, is below it."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

_DIGITS = 12  # of a dollar: what binary fractions add up to is not told from what was meant


@dataclass
class Charge:
    """One call's: what it is held to cost until it is over, and what it is then counted as."""

    most_usd: float
    counted_usd: float | None = None
    """None: all of `most_usd`."""


@dataclass(frozen=True)
class _Waiting:
    most_usd: float
    turn: asyncio.Future[None]


class Spend:
    """US dollars of one run.

    A call waits, in order of arrival, for those under way while their most would reach the cap, and for ever at the
    cap: a refusal would become a program's failure with a score. So at most one call goes beyond it, by its own cost.
    """

    def __init__(self, cap_usd: float | None, on_cap: Callable[[], None]) -> None:
        self.cap_usd = cap_usd
        self._on_cap = on_cap
        self._told = False
        self._spent = 0.0
        self._elsewhere = 0.0
        self._reserved = 0.0
        self._waiting: deque[_Waiting] = deque()

    @property
    def spent_usd(self) -> float:
        """What calls that are over were counted as."""
        return self._spent

    @property
    def elsewhere_usd(self) -> float:
        """What the run has spent besides, on whatever."""
        return self._elsewhere

    @elsewhere_usd.setter
    def elsewhere_usd(self, usd: float) -> None:
        self._elsewhere = usd
        self._look()

    def beyond(self, most_usd: float) -> bool:
        """Whether one call may cost more than the entire cap: by hanging up on it, a program would end the run."""
        return self.cap_usd is not None and round(most_usd, _DIGITS) > self.cap_usd

    @asynccontextmanager
    async def charge(self, most_usd: float) -> AsyncIterator[Charge]:
        """Around one call, entered once it may go out."""
        charge = Charge(most_usd)
        await self._admitted(most_usd)
        try:
            yield charge
        finally:
            self._reserved = round(self._reserved - most_usd, _DIGITS)
            counted = most_usd if charge.counted_usd is None else charge.counted_usd
            self._spent = round(self._spent + counted, _DIGITS)
            self._look()

    async def _admitted(self, most_usd: float) -> None:
        if not self._waiting and self._room():
            self._reserved = round(self._reserved + most_usd, _DIGITS)
            return
        waiting = _Waiting(most_usd, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        try:
            await waiting.turn
        except asyncio.CancelledError:
            if not waiting.turn.cancelled():  # its turn came in the same moment
                self._reserved = round(self._reserved - most_usd, _DIGITS)
            self._look()
            raise

    def _room(self) -> bool:
        return self.cap_usd is None or round(self._spent + self._elsewhere + self._reserved, _DIGITS) < self.cap_usd

    def _look(self) -> None:
        while self._waiting and self._room():
            waiting = self._waiting.popleft()
            if waiting.turn.cancelled():
                continue
            self._reserved = round(self._reserved + waiting.most_usd, _DIGITS)
            waiting.turn.set_result(None)
        if self.cap_usd is not None and not self._told:
            self._told = round(self._spent + self._elsewhere, _DIGITS) >= self.cap_usd
            if self._told:
                self._on_cap()
