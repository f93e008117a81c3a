"""What ends every wait of a fleet: an interruption from outside, or a defect inside."""

import asyncio
import contextlib
from collections.abc import Callable

from gepa_client.errors import Interrupted


class Stops:
    """Whether calls may go on, and the pauses that end at once when they may not. `on_stop`: ends all other waits."""

    def __init__(self, on_stop: Callable[[], None]) -> None:
        self._on_stop = on_stop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._interrupted: Interrupted | None = None
        self._defect: BaseException | None = None
        self._raised = False
        self._pauses: set[asyncio.Future[None]] = set()

    def bind(self) -> None:
        """The running event loop is the fleet's."""
        self._loop = asyncio.get_running_loop()

    def interrupt(self, interrupted: Interrupted) -> None:
        """From any thread; the first one counts."""
        if self._interrupted is None:
            self._interrupted = interrupted
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # a loop that was closed has nobody waiting
                self._loop.call_soon_threadsafe(self._wake)

    def defect(self, error: BaseException) -> None:
        """On the loop: a task of the fleet's own failed."""
        if self._defect is None:
            self._defect = error
        self._wake()

    def check(self) -> None:
        """Raise what stops the fleet, if anything does."""
        if self._interrupted is not None:
            raise Interrupted(self._interrupted.status, self._interrupted.reason)
        if self._defect is not None:
            self._raised = True
            raise self._defect

    def close(self) -> None:
        """Nobody may go on; raises a defect that no call was there to raise."""
        unheard = self._defect if not self._raised else None
        self._raised = True
        self.defect(RuntimeError("the fleet is closed"))
        if unheard is not None:
            raise unheard

    async def pause(self, seconds: float) -> None:
        """Wait so long, or until calls may not go on."""
        self.check()
        over = asyncio.get_running_loop().create_future()
        timer = asyncio.get_running_loop().call_later(seconds, _end, over)
        self._pauses.add(over)
        try:
            await over
        finally:
            timer.cancel()
            self._pauses.discard(over)
        self.check()

    def _wake(self) -> None:
        for over in self._pauses:
            _end(over)
        self._on_stop()


def _end(over: asyncio.Future[None]) -> None:
    if not over.done():
        over.set_result(None)
