"""Who gets the next slot: the least busy endpoint serves whoever asked first, within every endpoint's limit."""

import asyncio
import heapq
import itertools
from collections.abc import Callable
from typing import TypeAlias

from gepa_client.fleet.endpoint import Endpoint

Granted: TypeAlias = asyncio.Future[Endpoint | None]
Queue: TypeAlias = list[tuple[int, int, Granted]]
"""A heap of (ticket, order of arrival, slot to come); waits that have ended are passed over when they come up."""

Choice: TypeAlias = tuple[Endpoint | None, str | None]
"""(avoided, needed capability) of a call that may not go just anywhere."""

ANY: Choice = (None, None)

OUTDATED = 16
"""Entries per endpoint at which the heap of endpoints is rid of those that no longer count."""


class Slots:
    """The slots of all endpoints that are up, and the calls that wait for one.

    Nobody waits while an endpoint that could serve them has room, so a free slot found at once overtakes nobody. A
    ticket is a place in the order; a call keeps its own over all its attempts. Every step is logarithmic in the calls
    waiting. `on_waiting`: the first has begun to wait, or the last has ended.
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
        self._choosy: dict[Choice, Queue] = {}
        self._least_busy: list[tuple[float, int, Endpoint]] = []
        """A heap of (share in use, stamp, endpoint); only an endpoint's latest stamp counts."""

    @property
    def up(self) -> int:
        """How many endpoints take calls."""
        return len(self._standing)

    def offering(self, capability: str) -> bool:
        """Whether an endpoint that has this capability takes calls."""
        return any(endpoint.offers(capability) for endpoint in self._standing)

    def ticket(self) -> int:
        """A place in the order, behind all given so far."""
        return next(self._tickets)

    async def take(
        self, ticket: int, *, at: Endpoint | None = None, avoid: Endpoint | None = None, needs: str | None = None
    ) -> Endpoint | None:
        """Wait for a slot; give it back with `release`.

        `at`: of this endpoint only. `needs`: of one with this capability. `avoid`: of another one, as long as another
        one that will do is up. None: the wait was ended without one, by `wake`, because what `at` knew is given up, or
        because who has what the call needs must be looked at anew.
        """
        while at is None or not at.gone:
            endpoint = self._at_once(at, (avoid, needs)) or await self._wait(ticket, at, (avoid, needs))
            if endpoint is None or endpoint.up or endpoint.left:
                return endpoint
            self.release(endpoint)  # it went to rest after the slot was given: nothing is to be sent there
        return None

    def release(self, endpoint: Endpoint) -> None:
        """Give a slot back; it goes to whoever waits for it longest."""
        endpoint.in_flight -= 1
        self.in_flight -= 1
        self._serve(endpoint)

    def start(self, endpoint: Endpoint) -> None:
        """From now on the endpoint takes calls."""
        endpoint.up = True
        self._standing.add(endpoint)
        endpoint.gone = False
        self._serve(endpoint)

    def stop(self, endpoint: Endpoint) -> None:
        """The endpoint takes nothing new; what waits for it alone goes on waiting."""
        if endpoint.up:
            endpoint.up = False
            self._standing.discard(endpoint)
            self._avoidance_is_moot()

    def give_up(self, endpoint: Endpoint) -> None:
        """Whoever waits for this endpoint alone waits in vain: what its instance knew is gone."""
        endpoint.gone = True
        _end(endpoint.pinned)

    def wake(self, endpoints: list[Endpoint]) -> None:
        """End every wait, those for one of `endpoints` included, without a slot."""
        _end(self._anywhere)
        for queue in self._choosy.values():
            _end(queue)
        for endpoint in endpoints:
            _end(endpoint.pinned)

    def reconsider(self) -> None:
        """An endpoint came, went or changed: end the waits for a capability, as it may have come or gone with it."""
        for (_, needs), queue in self._choosy.items():
            if needs is not None:
                _end(queue)

    def roomiest(self, endpoints: list[Endpoint], avoid: Endpoint | None = None) -> Endpoint | None:
        """The endpoint with most room for several calls, those that wait for it counted; None where none is up."""
        up = [endpoint for endpoint in endpoints if endpoint.up]
        others = [endpoint for endpoint in up if endpoint is not avoid] or up
        return max(others, key=lambda endpoint: endpoint.room, default=None)

    async def _wait(self, ticket: int, at: Endpoint | None, choice: Choice) -> Endpoint | None:
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

    def _at_once(self, at: Endpoint | None, choice: Choice) -> Endpoint | None:
        has_room = at is not None and at.up and at.in_flight < at.slots
        chosen = (at if has_room else None) if at is not None else self._idlest(choice)
        if chosen is not None:
            self._occupy(chosen)
            self._offer(chosen)
        return chosen

    def _suits(self, endpoint: Endpoint, choice: Choice) -> bool:
        """Whether a call that chooses so may go there: to one it avoids only where no other will do."""
        avoid, needs = choice
        if not endpoint.offers(needs):
            return False
        return endpoint is not avoid or not any(each is not avoid and each.offers(needs) for each in self._standing)

    def _idlest(self, choice: Choice) -> Endpoint | None:
        """The least busy endpoint with room that suits, taken off the heap."""
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
        """Put the endpoint's share in use where `_idlest` finds it: of equals, the one that has been idle longest."""
        if not endpoint.up or endpoint.in_flight >= endpoint.slots:
            return
        endpoint.stamp = next(self._stamps)
        heapq.heappush(self._least_busy, (endpoint.in_flight / endpoint.slots, endpoint.stamp, endpoint))
        if len(self._least_busy) > OUTDATED * (self.up + 1):
            self._least_busy = [entry for entry in self._least_busy if entry[1] == entry[2].stamp]
            heapq.heapify(self._least_busy)

    def _serve(self, endpoint: Endpoint) -> None:
        """Give the endpoint's free slots to those who wait for them longest."""
        while endpoint.up and endpoint.in_flight < endpoint.slots:
            first = self._first_for(endpoint)
            if first is None:
                break
            _, _, granted = heapq.heappop(first)
            self._occupy(endpoint)
            granted.set_result(endpoint)
        self._offer(endpoint)

    def _first_for(self, endpoint: Endpoint) -> Queue | None:
        """The queue whose head the endpoint serves next."""
        queues = [endpoint.pinned, self._anywhere]
        if self._choosy:
            queues += [queue for choice, queue in self._choosy.items() if self._suits(endpoint, choice)]
            self._choosy = {choice: queue for choice, queue in self._choosy.items() if _live(queue)}
        waiting = [queue for queue in queues if _live(queue)]
        return min(waiting, default=None)

    def _avoidance_is_moot(self) -> None:
        """With no other endpoint left, those who would rather go elsewhere go there."""
        for avoided, _ in list(self._choosy):
            if avoided is not None:
                self._serve(avoided)


def _live(queue: Queue) -> bool:
    """Whether anybody waits in the queue; those at its head who no longer do are dropped."""
    while queue and queue[0][2].done():
        heapq.heappop(queue)
    return bool(queue)


def _end(queue: Queue) -> None:
    for _, _, granted in queue:
        if not granted.done():
            granted.set_result(None)
    queue.clear()
