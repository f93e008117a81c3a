"""Waiting for a slot: which call gets the next one, and what ends every wait (an interruption, a defect)."""

import asyncio
import bisect
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from gepa_client.errors import Interrupted
from gepa_client.fleet.endpoint import Endpoint


@dataclass(eq=False)
class _Wait:
    """A call that wants a slot: its place in the order, and which endpoints suit it (see `Slots.take`)."""

    ticket: int
    at: Endpoint | None
    avoid: Endpoint | None
    needs: str | None
    granted: asyncio.Future[Endpoint | None] = field(init=False)


class Slots:
    """The slots of all endpoints that are up, and the calls that wait for one.

    No call waits while an endpoint that could serve it has room, so taking a free slot at once overtakes none. A ticket
    is a place in the order; a call keeps its ticket over all its attempts. Every wait ends when an endpoint begins or
    ceases to take calls, or is given up: the call then decides anew what it waits for, and how long.
    """

    def __init__(self) -> None:
        self._standing: set[Endpoint] = set()
        self._tickets = itertools.count()
        self._numbers = itertools.count(1)
        self._waits: list[_Wait] = []

    @property
    def up(self) -> int:
        """How many endpoints take calls."""
        return len(self._standing)

    @property
    def waiting(self) -> int:
        """How many calls wait for a slot."""
        return len(self._waits)

    def offering(self, capability: str | None) -> bool:
        """Whether an endpoint with this capability takes calls; any one for None."""
        return any(endpoint.offers(capability) for endpoint in self._standing)

    def ticket(self) -> int:
        """Return a place in the order, behind all given so far."""
        return next(self._tickets)

    async def take(
        self, ticket: int, *, at: Endpoint | None = None, avoid: Endpoint | None = None, needs: str | None = None
    ) -> Endpoint | None:
        """Wait for a slot; give it back with `release`.

        `at`: only of this endpoint. `needs`: of one with this capability. `avoid`: of another one, if another suitable
        one is up. None: the endpoints have changed meanwhile.
        """
        wait = _Wait(ticket, at, avoid, needs)
        able = [endpoint for endpoint in self._standing if endpoint.has_room and self._suits(endpoint, wait)]
        if able:
            endpoint = min(able, key=lambda each: (each.in_flight / each.slots, each.idle_since))
            self._occupy(endpoint)
            return endpoint
        wait.granted = asyncio.get_running_loop().create_future()
        bisect.insort(self._waits, wait, key=lambda each: each.ticket)
        try:
            found = await wait.granted
        except asyncio.CancelledError:
            if wait in self._waits:
                self._waits.remove(wait)
            elif not wait.granted.cancelled() and (unused := wait.granted.result()) is not None:
                self.release(unused)
            raise
        if found is not None and not found.up and not found.left:
            self.release(found)  # it began to cool down after the slot was given
            return None
        return found

    def release(self, endpoint: Endpoint) -> None:
        """Give a slot back; it goes to the call that waits for it longest."""
        endpoint.in_flight -= 1
        endpoint.idle_since = next(self._numbers)
        waiting = (wait for wait in self._waits if not wait.granted.done() and self._suits(endpoint, wait))
        if endpoint.up and endpoint.has_room and (first := next(waiting, None)) is not None:
            self._occupy(endpoint)
            self._waits.remove(first)
            first.granted.set_result(endpoint)

    def start(self, endpoint: Endpoint) -> None:
        """Let the endpoint take calls."""
        endpoint.up = True
        endpoint.gone = False
        endpoint.idle_since = next(self._numbers)
        self._standing.add(endpoint)
        self.wake()

    def stop(self, endpoint: Endpoint) -> None:
        """Give the endpoint no new calls; calls may wait for it alone."""
        endpoint.up = False
        self._standing.discard(endpoint)
        self.wake()

    def give_up(self, endpoint: Endpoint) -> None:
        """Have no call wait for this endpoint alone: what its instance knew is gone."""
        endpoint.gone = True
        self.wake()

    def wake(self) -> None:
        """End every wait without a slot."""
        waits, self._waits = self._waits, []
        for wait in waits:
            if not wait.granted.done():
                wait.granted.set_result(None)

    def _suits(self, endpoint: Endpoint, wait: _Wait) -> bool:
        """Whether a call may go there: to an avoided endpoint only if no other is suitable."""
        if wait.at is not None:
            return endpoint is wait.at
        if not endpoint.offers(wait.needs):
            return False
        return endpoint is not wait.avoid or not any(
            each is not wait.avoid and each.offers(wait.needs) for each in self._standing
        )

    def _occupy(self, endpoint: Endpoint) -> None:
        endpoint.in_flight += 1
        endpoint.idle_since = next(self._numbers)


class InFlightLimit:
    """Bounds the examples in flight over all endpoints of a run, on one event loop; None: only endpoints bound them.

    Waits are served in the order of arrival. A call of several examples waits until there is room for all of them.
    """

    def __init__(self, most: int | None) -> None:
        self.most = most
        self._room = asyncio.Semaphore(most or 0)
        self._turn = asyncio.Lock()  # no call takes room while another one has taken a part of what it needs

    def hold(self, examples: int) -> contextlib.AbstractAsyncContextManager[None]:
        """Count the examples, at most `most`, as in flight during the block."""
        return contextlib.nullcontext() if self.most is None else self._hold(examples)

    @contextlib.asynccontextmanager
    async def _hold(self, examples: int) -> AsyncIterator[None]:
        held = 0
        try:
            async with self._turn:
                for _ in range(examples):
                    await self._room.acquire()
                    held += 1
            yield
        finally:
            for _ in range(held):
                self._room.release()


class Pin:
    """Keeps the calls of one traced minibatch on the one instance that can read the references it returns.

    `instance`: None until the first call has chosen one; it changes when the instance is gone. `settled`: the instance
    holds references already, so that moving costs work.
    """

    def __init__(self, instance: str | None = None) -> None:
        self.instance = instance
        self.settled = instance is not None

    def move(self, instance: str | None) -> None:
        """Send further calls to this instance; None: to the one that the next call chooses."""
        if instance != self.instance:
            self.instance = instance
            self.settled = False


class Shutdown:
    """Whether calls may continue, and the pauses that end when they may not. `on_stop`: ends all other waits."""

    def __init__(self, on_stop: Callable[[], None]) -> None:
        self._on_stop = on_stop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reason: BaseException | None = None
        self._raised = False
        self._stopped = asyncio.Event()

    def bind(self) -> None:
        """Take the running event loop as the fleet's."""
        self._loop = asyncio.get_running_loop()

    def stop(self, reason: BaseException) -> None:
        """Stop the fleet, from any thread, by an interruption or a defect of its own; the first reason counts."""
        if self._reason is None:
            self._reason = reason
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # nothing waits on a closed loop
                self._loop.call_soon_threadsafe(self._wake)

    def check(self) -> None:
        """Raise what has stopped the fleet, if anything has."""
        if self._reason is not None:
            self._raised = True
            raise self._reason.again() if isinstance(self._reason, Interrupted) else self._reason

    def close(self) -> None:
        """Stop the fleet; raises a defect that no call has raised."""
        is_known = self._raised or self._reason is None or isinstance(self._reason, Interrupted)
        self.stop(RuntimeError("the fleet is closed"))
        if not is_known:
            self.check()
        self._raised = True

    async def pause(self, seconds: float) -> None:
        """Wait so long; raises early if the fleet is stopped."""
        self.check()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
        self.check()

    def _wake(self) -> None:
        self._stopped.set()
        self._on_stop()
