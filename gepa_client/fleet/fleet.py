"""The endpoints of a run as one thing that answers calls."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from gepa_client.errors import Interrupted
from gepa_client.fleet.calls import Call
from gepa_client.fleet.commit_uploader import Bundles, Courier, NoBundles
from gepa_client.fleet.compatibility import Wanted
from gepa_client.fleet.endpoint import Endpoint
from gepa_client.fleet.endpoints_file import Address
from gepa_client.fleet.fleet_events import FleetEvent
from gepa_client.fleet.membership import Members
from gepa_client.fleet.outage import Outage
from gepa_client.fleet.shutdown import Stops
from gepa_client.fleet.slots import Slots
from gepa_client.fleet.work import Answered, Attempts, Pin
from gepa_client.transport.rpc import RpcClient
from protocol import DiscoverResult

T = TypeVar("T")


class Fleet:
    """Gives each call to the least busy endpoint, and to another one when that one fails. One event loop.

    `max_attempts`: attempts that reached a server, before the run pauses. `first_backoff_s`: the mean wait after the
    first failure, three times as long after each further one. `max_outage_s`: how long calls wait while no endpoint is
    up. `wanted`: names the splits whose rows must be the same everywhere. `allow_mixed_programs`: programs of different
    names may work together, if all else is the same. `on_event`: told of each change of state.
    `on_token`: told each token before it is used, as its file may be written while the fleet works. `bundles`: commits
    of candidates, brought to endpoints that lack them.
    """

    def __init__(
        self,
        *,
        max_attempts: int = 5,
        first_backoff_s: float = 0.5,
        max_outage_s: float = 600.0,
        wanted: Wanted | None = None,
        allow_mixed_programs: bool = False,
        on_event: Callable[[FleetEvent], None] = lambda _: None,
        on_token: Callable[[str], None] = lambda _: None,
        bundles: Bundles | None = None,
    ) -> None:
        self._max_attempts = max_attempts
        self._first_backoff_s = first_backoff_s
        self._max_outage_s = max_outage_s
        self._courier = Courier(bundles or NoBundles())
        self._slots = Slots(lambda: self._members.waiting_changed())
        self._stops = Stops(lambda: self._slots.wake(self._members.endpoints))
        self._members = Members(
            self._slots,
            wanted=wanted,
            allow_mixed_programs=allow_mixed_programs,
            outage=Outage(max_outage_s, on_event, lambda words: self._stops.interrupt(Interrupted("paused", words))),
            on_event=on_event,
            on_token=on_token,
            on_end=self._stops.defect,
        )

    async def open(self, addresses: Sequence[Address]) -> DiscoverResult:
        """Contact all endpoints at the same time; the first in the given order that answers leads: its description.

        Those that do not answer are told of and tried again later.

        Raises:
            Refused: an address cannot be used, or the endpoints do not serve the same, which is told in full.
            RpcError, ClientError: none can be used; with one endpoint, its error as it came.
        """
        self._stops.bind()
        try:
            return await self._members.open(addresses)
        except BaseException:
            await self.aclose()
            raise

    def follow(self, path: Path) -> None:
        """Re-read the fleet file while running: endpoints join and leave; one that cannot be used changes nothing."""
        self._members.follow(path)

    async def aclose(self) -> None:
        """End what the fleet does on its own and close all clients; safe to call twice."""
        try:
            self._stops.close()
        finally:
            await self._members.aclose()

    @property
    def discovery(self) -> DiscoverResult:
        """What the leader said of itself when the fleet was opened."""
        if self._members.leader is None:
            raise RuntimeError("the fleet is not open")
        return self._members.leader

    @property
    def endpoints(self) -> list[Endpoint]:
        """Those of the fleet, up or resting; read `url`, `in_flight`, `slots`, `resting`, `done`."""
        return list(self._members.endpoints)

    @property
    def clients(self) -> list[RpcClient]:
        """The endpoints' clients, for calls that need no rules; those of endpoints that are up come first."""
        return [endpoint.client for endpoint in sorted(self._members.endpoints, key=lambda each: not each.up)]

    @property
    def in_flight(self) -> int:
        """Calls that are with an endpoint now."""
        return self._slots.in_flight

    @property
    def waiting(self) -> int:
        """Calls that wait for a slot."""
        return self._slots.waiting

    @property
    def slots(self) -> int:
        """Calls that all endpoints which are up take at once."""
        return sum(endpoint.slots for endpoint in self._members.endpoints if endpoint.up)

    def offers(self, capability: str) -> bool:
        """Whether any endpoint that has answered named this capability: then `call` finds it."""
        return any(endpoint.offers(capability) for endpoint in self._members.endpoints)

    async def call(
        self,
        what: str,
        send: Callable[[RpcClient, str | None], Awaitable[Answered[T]]],
        attempts: Attempts,
        *,
        pin: Pin | None = None,
        needs: str | None = None,
    ) -> T:
        """Have one call answered, wherever that succeeds; whoever asked first is served first.

        `what`: names it in errors, as in `example 'x'`. `send(client, call_id)`: makes the call once; `call_id` is None
        where the endpoint knows none. `pin`: keeps it where the other calls of its minibatch are. `needs`: a capability
        that only some of the endpoints may have; the call goes to those, and waits while they rest.

        Raises:
            Interrupted: `paused` after `max_attempts` without a result or `max_outage_s` without an endpoint for it, or
                at once where none has the capability it needs; or what `interrupt` was given.
            RpcError, ClientError: what neither a repetition nor another endpoint can change, as it came.
        """
        if self._members.leader is None:
            raise RuntimeError("the fleet is not open")
        call = Call(
            what,
            send,
            attempts,
            pin,
            slots=self._slots,
            members=self._members,
            stops=self._stops,
            courier=self._courier,
            max_attempts=self._max_attempts,
            first_backoff_s=self._first_backoff_s,
            max_outage_s=self._max_outage_s,
            needs=needs,
        )
        return await call.run()

    async def cut(self, why: str) -> None:
        """After `interrupt`: give up what is in flight, as it may never end."""
        self._members.cut(why)

    def interrupt(self, interrupted: Interrupted) -> None:
        """From any thread: whoever waits raises this, and so does every later call; what is in flight goes on."""
        self._stops.interrupt(interrupted)
