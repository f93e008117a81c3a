"""Waiting for a slot: which call gets the next one, and what ends every wait (an interruption, a defect, an outage)."""

import asyncio
import bisect
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from gepa_client.errors import Interrupted
from gepa_client.fleet.endpoint import Endpoint, FleetEvent


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
    is a place in the order; a call keeps its ticket over all its attempts. `on_waiting`: called when the first call
    begins to wait and when the last wait ends.
    """

    def __init__(self, on_waiting: Callable[[], None]) -> None:
        self._standing: set[Endpoint] = set()
        self.waiting = 0
        self._on_waiting = on_waiting
        self._tickets = itertools.count()
        self._numbers = itertools.count(1)
        self._waits: list[_Wait] = []

    @property
    def up(self) -> int:
        """How many endpoints take calls."""
        return len(self._standing)

    def offering(self, capability: str) -> bool:
        """Whether an endpoint with this capability takes calls."""
        return any(endpoint.offers(capability) for endpoint in self._standing)

    def ticket(self) -> int:
        """Return a place in the order, behind all given so far."""
        return next(self._tickets)

    async def take(
        self, ticket: int, *, at: Endpoint | None = None, avoid: Endpoint | None = None, needs: str | None = None
    ) -> Endpoint | None:
        """Wait for a slot; give it back with `release`.

        `at`: only of this endpoint. `needs`: of one with this capability. `avoid`: of another one, if another suitable
        one is up. None: the wait ended without a slot, by `wake`, because what `at` knew is given up, or because the
        endpoints that have what the call needs have changed.
        """
        while at is None or not at.gone:
            wait = _Wait(ticket, at, avoid, needs)
            able = [endpoint for endpoint in self._standing if endpoint.has_room and self._suits(endpoint, wait)]
            if able:
                endpoint = min(able, key=lambda each: (each.in_flight / each.slots, each.idle_since))
                self._occupy(endpoint)
                return endpoint
            found = await self._granted(wait)
            if found is None or found.up or found.left:
                return found
            self.release(found)  # it began to cool down after the slot was given
        return None

    def release(self, endpoint: Endpoint) -> None:
        """Give a slot back; it goes to the call that waits for it longest."""
        endpoint.in_flight -= 1
        endpoint.idle_since = next(self._numbers)
        self._serve(endpoint)

    def start(self, endpoint: Endpoint) -> None:
        """Let the endpoint take calls."""
        endpoint.up = True
        endpoint.idle_since = next(self._numbers)
        self._standing.add(endpoint)
        endpoint.gone = False
        self._serve(endpoint)

    def stop(self, endpoint: Endpoint) -> None:
        """Give the endpoint no new calls; calls that wait for it alone keep waiting."""
        endpoint.up = False
        self._standing.discard(endpoint)
        for other in self._standing:  # calls that avoid it go there if no other is left
            self._serve(other)

    def give_up(self, endpoint: Endpoint) -> None:
        """End the waits for this endpoint alone: what its instance knew is gone."""
        endpoint.gone = True
        self._end(lambda wait: wait.at is endpoint)

    def wake(self) -> None:
        """End every wait without a slot."""
        self._end(lambda _: True)

    def reconsider(self) -> None:
        """End the waits for a capability: an endpoint joined, left or changed, and the capability with it."""
        self._end(lambda wait: wait.needs is not None)

    async def _granted(self, wait: _Wait) -> Endpoint | None:
        wait.granted = asyncio.get_running_loop().create_future()
        bisect.insort(self._waits, wait, key=lambda each: each.ticket)
        self.waiting += 1
        if self.waiting == 1:
            self._on_waiting()
        try:
            return await wait.granted
        except asyncio.CancelledError:
            if not wait.granted.cancelled() and (unused := wait.granted.result()) is not None:
                self.release(unused)
            raise
        finally:
            if wait.granted.cancelled():
                self._waits.remove(wait)
            self.waiting -= 1
            if not self.waiting:
                self._on_waiting()

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

    def _serve(self, endpoint: Endpoint) -> None:
        """Give the endpoint's free slots to the calls that wait for them longest."""
        while endpoint.up and endpoint.has_room:
            waiting = (wait for wait in self._waits if not wait.granted.done() and self._suits(endpoint, wait))
            first = next(waiting, None)
            if first is None:
                return
            self._occupy(endpoint)
            self._grant(first, endpoint)

    def _end(self, is_ended: Callable[[_Wait], bool]) -> None:
        for wait in [each for each in self._waits if not each.granted.done() and is_ended(each)]:
            self._grant(wait, None)

    def _grant(self, wait: _Wait, endpoint: Endpoint | None) -> None:
        self._waits.remove(wait)
        wait.granted.set_result(endpoint)


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
        self._interrupted: Interrupted | None = None
        self._defect: BaseException | None = None
        self._raised = False
        self._stopped = asyncio.Event()

    def bind(self) -> None:
        """Take the running event loop as the fleet's."""
        self._loop = asyncio.get_running_loop()

    def interrupt(self, interrupted: Interrupted) -> None:
        """Stop the fleet, from any thread; the first reason counts."""
        if self._interrupted is None:
            self._interrupted = interrupted
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # nothing waits on a closed loop
                self._loop.call_soon_threadsafe(self._wake)

    def defect(self, error: BaseException) -> None:
        """Stop the fleet because one of its own tasks failed; on the loop."""
        if self._defect is None:
            self._defect = error
        self._wake()

    def check(self) -> None:
        """Raise what has stopped the fleet, if anything has."""
        if self._interrupted is not None:
            raise self._interrupted.again()
        if self._defect is not None:
            self._raised = True
            raise self._defect

    def close(self) -> None:
        """Stop the fleet; raises a defect that no call has raised."""
        unraised = self._defect if not self._raised else None
        self._raised = True
        self.defect(RuntimeError("the fleet is closed"))
        if unraised is not None:
            raise unraised

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


class Outage:
    """A clock that runs while a call waits and no endpoint is up.

    An accepted call resets it; an overloaded endpoint that returns does not: a server that refuses everything is an
    outage too. `last_error`: the last failure of any endpoint. `on_outage(reason)`: called at `max_outage_s`.
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
        self._reported = False

    def run(self) -> None:
        """Let the clock run: a call waits, and no endpoint is up."""
        if self._timer is None:
            self._resumed = time.monotonic()
            remaining_s = max(self._max_outage_s - self._waited_s, 0.0)
            self._timer = asyncio.get_running_loop().call_later(remaining_s, self._reached)

    def suspend(self) -> None:
        """Stop the clock: an endpoint is up, no call waits, or the fleet closes."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._waited_s += time.monotonic() - self._resumed

    def over(self) -> None:
        """Reset the clock: an endpoint takes calls again."""
        self.suspend()
        self._waited_s = 0.0

    def report(self) -> None:
        """Report that a call waits for any endpoint at all, once in an outage."""
        if not self._reported:
            self._reported = True
            self._on_event(FleetEvent("waiting", None, f"no endpoint is left{self._cause()}", self._max_outage_s))

    def report_again(self) -> None:
        """Have the next outage reported again."""
        self._reported = False

    def _reached(self) -> None:
        waited_s = self._waited_s + time.monotonic() - self._resumed
        self._on_outage(f"no endpoint left for {waited_s:.3g} s{self._cause()}")

    def _cause(self) -> str:
        return f"; last error: {self.last_error}" if self.last_error else ""
