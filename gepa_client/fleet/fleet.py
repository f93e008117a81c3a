"""The endpoints of a run behind one interface that answers calls."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from gepa_client.errors import Interrupted
from gepa_client.fleet.endpoint import Bundle, Endpoint, FleetEvent
from gepa_client.fleet.handshake import SplitChoice
from gepa_client.fleet.host_evidence import HostEvidence
from gepa_client.fleet.membership import Membership
from gepa_client.fleet.routed_call import CallExecution
from gepa_client.fleet.seed_comparison import SeedComparison
from gepa_client.fleet.slots import InFlightLimit, Pin
from gepa_client.transport.address import Address
from gepa_client.transport.calls import AttemptLog, Call, Reply
from gepa_client.transport.rpc import RpcClient
from protocol import DiscoverResult

T = TypeVar("T")


class Fleet:
    """Gives each call to the least busy endpoint, and to another one if that one fails. One event loop.

    `max_attempts`: attempts that reach a server before the run pauses, unless other rows' calls succeed meanwhile (see
    `ExampleRetries`). `first_backoff_s`: the mean wait after the first
    failure, three times as long after each further one. `max_outage_s`: how long calls wait while no endpoint is up.
    `splits`: chooses the splits whose rows must be the same everywhere. `allow_mixed_programs`: programs of different
    names, or results, may work together if all else is the same. `example_timeout_s`: lowers the
    servers' own limit; endpoints that cannot be given one are refused. `concurrency`: bounds the examples in flight at
    all endpoints together. `on_event`: called with each change of state. `on_token`: called with each token
    before it is used, as its file may be written while the fleet works. `bundles`: returns all that lead to a commit,
    parents first, for endpoints that lack it; empty if the run has no bundle of it.
    """

    def __init__(
        self,
        *,
        max_attempts: int = 5,
        first_backoff_s: float = 0.5,
        max_outage_s: float = 600.0,
        splits: SplitChoice | None = None,
        allow_mixed_programs: bool = False,
        example_timeout_s: float | None = None,
        concurrency: InFlightLimit | None = None,
        on_event: Callable[[FleetEvent], None] = lambda _: None,
        on_token: Callable[[str], None] = lambda _: None,
        bundles: Callable[[str], Sequence[Bundle]] = lambda _: (),
    ) -> None:
        self._max_attempts = max_attempts
        self._first_backoff_s = first_backoff_s
        self._max_outage_s = max_outage_s
        self._bundles = bundles
        self.concurrency = concurrency or InFlightLimit(None)
        self._evidence = HostEvidence()
        self._membership = Membership(
            splits=splits,
            allow_mixed_programs=allow_mixed_programs,
            example_timeout_s=example_timeout_s,
            max_outage_s=max_outage_s,
            on_event=on_event,
            on_token=on_token,
        )

    async def open(self, addresses: Sequence[Address]) -> DiscoverResult:
        """Contact all endpoints at once and return what the leader declares: the first in order that answers.

        Endpoints that do not answer are reported and tried again later.

        Raises:
            Refused: an address cannot be used, or the endpoints do not serve the same; all differences are named.
            RpcError, ClientError: none can be used; with one endpoint, its own error.
        """
        self._membership.shutdown.bind()
        try:
            return await self._membership.open(addresses)
        except BaseException:
            await self.aclose()
            raise

    def follow(self, path: Path) -> None:
        """Follow the fleet file: endpoints join and leave as it changes; an unusable file changes nothing."""
        self._membership.follow(path)

    async def compare(self, comparison: SeedComparison, recorded: DiscoverResult | None = None) -> None:
        """Compare the results of the endpoints now, and of each that joins or is back from now on.

        `recorded`: what the first server of a run declared that is resumed. Endpoints with the code of one that agrees
        are not compared.

        Raises:
            Refused: the results of some differ beyond noise, unless mixed programs are allowed; all are named.
        """
        await self._membership.compare(comparison, recorded)

    async def aclose(self) -> None:
        """End the fleet's own tasks and close all clients; safe to call twice."""
        try:
            self._membership.shutdown.close()
        finally:
            await self._membership.aclose()

    @property
    def discovery(self) -> DiscoverResult:
        """What the leader declared when the fleet was opened."""
        if self._membership.leader is None:
            raise RuntimeError("the fleet is not open")
        return self._membership.leader

    @property
    def endpoints(self) -> list[Endpoint]:
        """All endpoints, up or cooling down; read `url`, `in_flight`, `slots`, `resting`, `done`."""
        return list(self._membership.endpoints)

    @property
    def clients(self) -> list[RpcClient]:
        """The endpoints' clients, for calls without retries; those of endpoints that are up come first."""
        return [endpoint.client for endpoint in sorted(self._membership.endpoints, key=lambda each: not each.up)]

    @property
    def in_flight(self) -> int:
        """Calls that an endpoint is answering now."""
        return self._membership.slots.in_flight

    @property
    def waiting(self) -> int:
        """Calls that wait for a slot."""
        return self._membership.slots.waiting

    @property
    def slots(self) -> int:
        """Calls that all endpoints which are up take at once."""
        return sum(endpoint.slots for endpoint in self._membership.endpoints if endpoint.up)

    def offers(self, capability: str) -> bool:
        """Whether any endpoint that has answered names this capability: `call` then finds it."""
        return any(endpoint.offers(capability) for endpoint in self._membership.endpoints)

    async def call(self, call: Call[T], log: AttemptLog, *, pin: Pin | None = None) -> Reply[T]:
        """Return the answer to a call, from whichever endpoint gives it; calls are served in the order of arrival.

        `log`: where each attempt is written before it is sent. `pin`: keeps the call on the instance of its minibatch.
        A call that `needs` a capability goes to the endpoints that have it, and waits while they cool down.

        Raises:
            Interrupted: `paused` after `max_attempts` without a result or `max_outage_s` without an endpoint for it, or
                at once if none has the capability it needs; or what `interrupt` was given.
            RpcError, ClientError: what neither a repetition nor another endpoint can change, as it came.
        """
        if self._membership.leader is None:
            raise RuntimeError("the fleet is not open")
        execution = CallExecution(
            call,
            log,
            pin,
            membership=self._membership,
            evidence=self._evidence,
            concurrency=self.concurrency,
            bundles=self._bundles,
            max_attempts=self._max_attempts,
            first_backoff_s=self._first_backoff_s,
            max_outage_s=self._max_outage_s,
        )
        return await execution.run()

    async def cut(self, why: str) -> None:
        """End all calls in flight as lost; call it after `interrupt`, if they may never end."""
        self._membership.cut(why)

    def interrupt(self, interrupted: Interrupted) -> None:
        """Have waiting and later calls raise this, from any thread; calls in flight continue."""
        self._membership.shutdown.interrupt(interrupted)
