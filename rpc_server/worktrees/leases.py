"""Things that are expensive to make, a bounded number of them, put away least recently used first."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class Closed(Exception):
    """Nothing is made any more."""


class _Held(Generic[T]):
    """One thing, there or being made. `users`: how many hold or wait for it."""

    def __init__(self, making: "asyncio.Future[T]") -> None:
        self.making = making
        self.users = 0


class Leases(Generic[T]):
    """Things by name, made when first asked for; at most `bound` of them at a time, those being unmade included.

    What is in use is never put away: where all are, who asks for another one waits. So whoever waits for one must hold
    no other. `make(name)` and `unmake(thing)` run one at a time for each name; what nobody waits for any more is not
    made to its end.
    """

    def __init__(self, make: Callable[[str], Awaitable[T]], unmake: Callable[[T], Awaitable[None]], bound: int) -> None:
        self._make = make
        self._unmake = unmake
        self._bound = bound
        self._held: OrderedDict[str, _Held[T]] = OrderedDict()
        self._ending: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._waiting = 0
        self._closed = False

    @asynccontextmanager
    async def of(self, name: str) -> AsyncIterator[T]:
        """The thing of this name, kept as long as the block runs.

        Raises what `make` raises, to all who wait for it; then it is not kept, and made anew for who asks next.

        Raises:
            Closed: it is, or is closed meanwhile.
        """
        held = await self._take(name)
        try:
            await asyncio.wait([held.making])  # which our being cancelled leaves as it is
            if held.making.cancelled():
                raise Closed
            yield held.making.result()
        finally:
            held.users -= 1
            self._left(name, held)

    async def keep(self, name: str, thing: T) -> None:
        """Hand over one that was made elsewhere.

        It is unmade at once where there is one of the name already, or all are in use: it can be made again. Otherwise
        something idle makes room, whose end is waited for.
        """
        while not self._closed and name not in self._held and name not in self._ending:
            if self._has_room():
                made: asyncio.Future[T] = asyncio.get_running_loop().create_future()
                made.set_result(thing)
                self._held[name] = _Held(made)
                self._changed.set()
                return
            if not self._ending:
                break
            await self._change()
        await self._unmake(thing)

    async def close(self) -> None:
        """Unmake all that there is, in use or not."""
        self._closed = True
        for name in list(self._held):
            self._put_away(name)
        self._changed.set()
        while self._ending:
            await asyncio.wait(set(self._ending.values()))

    async def _take(self, name: str) -> _Held[T]:
        while True:
            if self._closed:
                raise Closed
            held = self._held.get(name)
            if held is None and name not in self._ending and self._has_room():
                held = self._held[name] = _Held(asyncio.ensure_future(self._make(name)))
            if held is not None:
                held.users += 1
                self._held.move_to_end(name)
                return held
            await self._change()

    async def _change(self) -> None:
        """Wait until there may be room."""
        self._changed.clear()
        self._waiting += 1
        try:
            await self._changed.wait()
        finally:
            self._waiting -= 1

    def _has_room(self) -> bool:
        """Whether another fits; where none does, something idle is put away for each who waits."""
        if len(self._held) + len(self._ending) < self._bound:
            return True
        if len(self._ending) <= self._waiting:
            self._put_away_idle()
        return False

    def _put_away_idle(self) -> bool:
        """Put away what was longest unused; whether anything was."""
        idle = next((name for name, held in self._held.items() if not held.users), None)
        if idle is not None:
            self._put_away(idle)
        return idle is not None

    def _left(self, name: str, held: _Held[T]) -> None:
        """A user is gone, perhaps the last."""
        self._changed.set()
        if self._held.get(name) is not held:
            return  # put away at the close
        if held.making.done() and (held.making.cancelled() or held.making.exception() is not None):
            del self._held[name]
        elif not held.users and not held.making.done():
            self._put_away(name)
        else:
            self._held.move_to_end(name)

    def _put_away(self, name: str) -> None:
        held = self._held.pop(name)
        task = self._ending[name] = asyncio.ensure_future(self._end(held))

        def ended(_: "asyncio.Task[None]") -> None:
            del self._ending[name]
            self._changed.set()

        task.add_done_callback(ended)

    async def _end(self, held: _Held[T]) -> None:
        if not held.making.done():
            held.making.cancel()
            await asyncio.wait([held.making])
        if not held.making.cancelled() and held.making.exception() is None:
            await self._unmake(held.making.result())
