"""Waiting for a slot: which call gets the next one, and what ends every wait (an interruption, a defect, an outage)."""

import asyncio
import contextlib
import heapq
import itertools
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import TypeAlias

from gepa_client.errors import Interrupted
from gepa_client.fleet.endpoint import Endpoint, FleetEvent

Granted: TypeAlias = asyncio.Future[Endpoint | None]
Queue: TypeAlias = list[tuple[int, int, Granted]]
"""A heap of (ticket, order of arrival, promised slot); waits that have ended are skipped when they come up."""

PlacementRule: TypeAlias = tuple[Endpoint | None, str | None]
"""(avoided endpoint, needed capability) of a call that may not go to every endpoint."""

ANY: PlacementRule = (None, None)

OUTDATED = 16
"""Entries per endpoint at which outdated ones are removed from the heap of endpoints."""


class Slots:
    """The slots of all endpoints that are up, and the calls that wait for one.

    No call waits while an endpoint that could serve it has room, so taking a free slot at once overtakes none. A ticket
    is a place in the order; a call keeps its ticket over all its attempts. Every step is logarithmic in the number of
    waiting calls. `on_waiting`: called when the first call begins to wait and when the last wait ends.
    """

    def __init__(self, on_waiting: Callable[[], None]) -> None:
        self._standing: set[Endpoint] = set()
        self.in_flight = 0
        self.waiting = 0
        self._on_waiting = on_waiting
        self._tickets = itertools.count()
        self._stamps = itertools.count(1)
        self._arrivals = itertools.count()
        self._anywhere: Queue = []
        self._choosy: dict[PlacementRule, Queue] = {}
        self._least_busy: list[tuple[float, int, Endpoint]] = []
        """A heap of (share in use, stamp, endpoint); only an endpoint's latest stamp counts."""

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
            endpoint = self._at_once(at, (avoid, needs)) or await self._wait(ticket, at, (avoid, needs))
            if endpoint is None or endpoint.up or endpoint.left:
                return endpoint
            self.release(endpoint)  # it began to cool down after the slot was given
        return None

    def release(self, endpoint: Endpoint) -> None:
        """Give a slot back; it goes to the call that waits for it longest."""
        endpoint.in_flight -= 1
        self.in_flight -= 1
        self._serve(endpoint)

    def start(self, endpoint: Endpoint) -> None:
        """Let the endpoint take calls."""
        endpoint.up = True
        self._standing.add(endpoint)
        endpoint.gone = False
        self._serve(endpoint)

    def stop(self, endpoint: Endpoint) -> None:
        """Give the endpoint no new calls; calls that wait for it alone keep waiting."""
        if endpoint.up:
            endpoint.up = False
            self._standing.discard(endpoint)
            self._avoidance_is_moot()

    def give_up(self, endpoint: Endpoint) -> None:
        """End the waits for this endpoint alone: what its instance knew is gone."""
        endpoint.gone = True
        _end(endpoint.pinned)

    def wake(self, endpoints: list[Endpoint]) -> None:
        """End every wait without a slot, including those for one of `endpoints`."""
        _end(self._anywhere)
        for queue in self._choosy.values():
            _end(queue)
        for endpoint in endpoints:
            _end(endpoint.pinned)

    def reconsider(self) -> None:
        """End the waits for a capability: an endpoint joined, left or changed, and the capability with it."""
        for (_, needs), queue in self._choosy.items():
            if needs is not None:
                _end(queue)

    def roomiest(self, endpoints: list[Endpoint], avoid: Endpoint | None = None) -> Endpoint | None:
        """Return the endpoint with most room, counting the calls that wait for it; None if none is up."""
        up = [endpoint for endpoint in endpoints if endpoint.up]
        others = [endpoint for endpoint in up if endpoint is not avoid] or up
        return max(others, key=lambda endpoint: endpoint.room, default=None)

    async def _wait(self, ticket: int, at: Endpoint | None, choice: PlacementRule) -> Endpoint | None:
        queue = self._anywhere
        if at is not None:
            queue = at.pinned
        elif choice != ANY:
            queue = self._choosy.setdefault(choice, [])
        granted: Granted = asyncio.get_running_loop().create_future()
        heapq.heappush(queue, (ticket, next(self._arrivals), granted))
        self.waiting += 1
        if self.waiting == 1:
            self._on_waiting()
        try:
            return await granted
        except asyncio.CancelledError:
            if not granted.cancelled() and (unused := granted.result()) is not None:
                self.release(unused)
            raise
        finally:
            self.waiting -= 1
            if not self.waiting:
                self._on_waiting()

    def _at_once(self, at: Endpoint | None, choice: PlacementRule) -> Endpoint | None:
        has_room = at is not None and at.up and at.in_flight < at.slots
        chosen = (at if has_room else None) if at is not None else self._idlest(choice)
        if chosen is not None:
            self._occupy(chosen)
            self._offer(chosen)
        return chosen

    def _suits(self, endpoint: Endpoint, choice: PlacementRule) -> bool:
        """Whether a call with this rule may go there: to an avoided endpoint only if no other is suitable."""
        avoid, needs = choice
        if not endpoint.offers(needs):
            return False
        return endpoint is not avoid or not any(each is not avoid and each.offers(needs) for each in self._standing)

    def _idlest(self, choice: PlacementRule) -> Endpoint | None:
        """Take the least busy suitable endpoint with room off the heap."""
        aside = []
        found = None
        heap = self._least_busy
        while heap and found is None:
            entry = heapq.heappop(heap)
            _, stamp, endpoint = entry
            if stamp != endpoint.stamp or not endpoint.up or endpoint.in_flight >= endpoint.slots:
                continue
            if self._suits(endpoint, choice):
                found = endpoint
            else:
                aside.append(entry)
        for entry in aside:
            heapq.heappush(heap, entry)
        return found

    def _occupy(self, endpoint: Endpoint) -> None:
        endpoint.in_flight += 1
        self.in_flight += 1

    def _offer(self, endpoint: Endpoint) -> None:
        """Put the endpoint's share in use on the heap; of equal shares, the one idle longest comes first."""
        if not endpoint.up or endpoint.in_flight >= endpoint.slots:
            return
        endpoint.stamp = next(self._stamps)
        heapq.heappush(self._least_busy, (endpoint.in_flight / endpoint.slots, endpoint.stamp, endpoint))
        if len(self._least_busy) > OUTDATED * (self.up + 1):
            self._least_busy = [entry for entry in self._least_busy if entry[1] == entry[2].stamp]
            heapq.heapify(self._least_busy)

    def _serve(self, endpoint: Endpoint) -> None:
        """Give the endpoint's free slots to the calls that wait for them longest."""
        while self.waiting and endpoint.up and endpoint.in_flight < endpoint.slots:
            first = self._first_for(endpoint)
            if first is None:
                break
            _, _, granted = heapq.heappop(first)
            self._occupy(endpoint)
            granted.set_result(endpoint)
        self._offer(endpoint)

    def _first_for(self, endpoint: Endpoint) -> Queue | None:
        """Return the queue whose head the endpoint serves next."""
        queues = [endpoint.pinned, self._anywhere]
        if self._choosy:
            queues += [queue for choice, queue in self._choosy.items() if self._suits(endpoint, choice)]
            self._choosy = {choice: queue for choice, queue in self._choosy.items() if _live(queue)}
        waiting = [queue for queue in queues if _live(queue)]
        return min(waiting, default=None)

    def _avoidance_is_moot(self) -> None:
        """Serve calls that avoid an endpoint there if no other endpoint is left."""
        for avoided, _ in list(self._choosy):
            if avoided is not None:
                self._serve(avoided)


class InFlightLimit:
    """Bounds the examples in flight over all endpoints of a run, on one event loop; None: only endpoints bound them.

    Waits are served in the order of arrival. A call of several examples waits until there is room for all of them.
    """

    def __init__(self, most: int | None) -> None:
        self.most = most
        self._held = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def hold(self, examples: int) -> contextlib.AbstractAsyncContextManager[None]:
        """Count the examples, at most `most`, as in flight during the block."""
        return contextlib.nullcontext() if self.most is None else self._hold(examples, self.most)

    @contextlib.asynccontextmanager
    async def _hold(self, examples: int, most: int) -> AsyncIterator[None]:
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((examples, granted))
        self._serve(most)
        try:
            await granted
            yield
        finally:
            if granted.done() and not granted.cancelled():
                self._held -= examples
            self._serve(most)

    def _serve(self, most: int) -> None:
        while self._waiting:
            examples, granted = self._waiting[0]
            if not granted.done():
                if self._held + examples > most:
                    return
                self._held += examples
                granted.set_result(None)
            self._waiting.popleft()


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
        self._pauses: set[asyncio.Future[None]] = set()

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
        over = asyncio.get_running_loop().create_future()
        timer = asyncio.get_running_loop().call_later(seconds, _complete, over)
        self._pauses.add(over)
        try:
            await over
        finally:
            timer.cancel()
            self._pauses.discard(over)
        self.check()

    def _wake(self) -> None:
        for over in self._pauses:
            _complete(over)
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


def _live(queue: Queue) -> bool:
    """Whether a call waits in the queue; ended waits at its head are dropped."""
    while queue and queue[0][2].done():
        heapq.heappop(queue)
    return bool(queue)


def _end(queue: Queue) -> None:
    for _, _, granted in queue:
        if not granted.done():
            granted.set_result(None)
    queue.clear()


def _complete(over: asyncio.Future[None]) -> None:
    if not over.done():
        over.set_result(None)
