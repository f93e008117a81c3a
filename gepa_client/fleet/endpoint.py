"""One endpoint of a fleet: its client, slots, health, cooldowns and uploaded commits, and one attempt at it."""

import asyncio
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from gepa_client.errors import BadResponse, ClientError, ConnectionLost, Refused
from gepa_client.transport.address import RPC_PATH, Address
from gepa_client.transport.calls import AttemptLog, Call, FailedTry, Reply
from gepa_client.transport.responses import validated
from gepa_client.transport.rpc_client import RpcClient
from protocol import DiscoverResult, ImportCommitsResult
from protocol.errors import Overloaded, RpcError, Unauthorized

FIRST_S = 0.5
LONGEST_S = 30.0
LONGEST_REQUESTED_S = 60.0
"""The longest pause that an overloaded server may request at a time."""

MOST_GROWTH = 10
"""Pauses after which the mean does not grow any more."""

Cooldown = Literal["lost", "overloaded", "failing", "broken", "unreached"]
"""Why an endpoint gets no calls for a while; `unreached`: it has never answered."""

_random = random.SystemRandom()  # never GEPA's global generator


def growing_s(first_s: float, factor: float, earlier: int) -> float:
    """Return the seconds of a pause after `earlier` ones: about `factor` times the one before, up to `LONGEST_S`."""
    return min(first_s * factor ** min(earlier, MOST_GROWTH), LONGEST_S) * _random.uniform(0.75, 1.25)


def requested_pause_s(error: Overloaded) -> float:
    """Return the seconds that an overloaded server requests clients to wait."""
    requested = error.details.get("retry_after_s")
    return float(requested) if isinstance(requested, int | float) else 0.0


T = TypeVar("T")

FAILURES_TO_COOL_DOWN = 3
"""Consecutive `infra_error`s after which the endpoint, rather than the examples, is suspected."""

SILENCE_S = 1.0
"""Seconds without an answer in which a server may have been stopped and another one started."""

CHECK_TIMEOUT_S = 5.0

REPLACED = "another process answers there now; its traces are gone"

DRAIN_POLL_S = 0.5
DRAIN_TIMEOUT_S = 2.0
DRAIN_SILENT_POLLS = 2
"""Consecutive polls without an answer after which a draining endpoint counts as gone; a refused connection suffices."""

REQUEST_SHARE = 0.5
"""The part of the largest accepted request that bundles may fill; a larger bundle is sent alone."""

Bundle = tuple[str, str]
"""A commit, and the git bundle in base64 that has it."""

FleetEventKind = Literal["joined", "refused", "resting", "back", "left", "waiting", "warning"]


@dataclass(frozen=True)
class FleetEvent:
    """A change of state, reported once, on the fleet's event loop.

    `kind`: `joined` the fleet; `left` it, once its last call has ended; `refused` as it differs from the first server;
    `resting` (cooling down: it gets no new calls) until it is `back`; `waiting`: no endpoint is left; `warning`:
    anything else worth knowing. `url`: the endpoint's, None for the whole fleet. `detail`: the reason. `seconds`: how
    long it cools down at first, how long it was away, or how long the fleet waits before the run pauses.
    `about_scores`: a warning that the scores of the run may not be of one program.
    """

    kind: FleetEventKind
    url: str | None = None
    detail: str = ""
    seconds: float | None = None
    about_scores: bool = False


@dataclass(frozen=True, eq=False)
class SentCall:
    """A call without an answer yet. `request`: as in `Call`; `since`: when it was sent, on the monotonic clock.

    `limit_s`: after how many seconds the endpoint ends an example; None if nothing limits it.
    """

    request: tuple[str, str]
    since: float
    limit_s: float | None


@dataclass(eq=False)
class Endpoint:
    """The state of one endpoint. Read the figures; only the fleet changes them.

    `url`: without `/rpc`. `slots`: examples it takes at once; `in_flight`: calls it has from this process. `up`: it
    takes new calls. `left`: it has left the fleet. `gone`: what its instance knew is given up. `instance`: the admitted
    server process; `described`: what it declared; `answered_at`: its last answer, on the monotonic clock.
    `cooldowns`: how often it has cooled down: a call sent before a cooldown is no evidence about the endpoint after it.
    `idle_since`: when a call of it last began or ended, by a count.
    `uploaded`: (instance, commit) of the commits that it imported. `sent`: calls for requests of the journal that it is
    answering, in the order in which they were sent.
    """

    client: RpcClient
    slots: int = 0
    in_flight: int = 0
    up: bool = False
    left: bool = False
    gone: bool = False
    instance: str | None = None
    described: DiscoverResult | None = None
    cooldowns: int = 0
    cooldown: Cooldown | None = None
    since: float = 0.0
    until: float = 0.0
    failures: int = 0
    growth: int = 0
    last_warning: str = ""
    idle_since: int = 0
    answered_at: float = 0.0
    prober: asyncio.Task[None] | None = None
    checking: asyncio.Task[bool] | None = None
    uploaded: set[tuple[str | None, str]] = field(default_factory=set)
    uploading: asyncio.Lock = field(default_factory=asyncio.Lock)
    sent: dict[SentCall, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.url = self.client.url.removesuffix(RPC_PATH)

    @classmethod
    def at(cls, address: Address, example_timeout_s: float | None = None) -> "Endpoint":
        """Return an endpoint that has not been contacted; have its client `read_token` first.

        `example_timeout_s`: as of its client.

        Raises:
            Refused: the address cannot be used.
        """
        return cls(RpcClient(address, example_timeout_s=example_timeout_s, in_fleet=True))

    def __repr__(self) -> str:
        return f"Endpoint({self.url!r})"

    def is_renewed_after(self, error: Exception) -> bool:
        """Whether access may return by itself: the token of the proxy in front of it is renewed from time to time."""
        renewed = self.client.address.proxy_token_file is not None
        return renewed and isinstance(error, Unauthorized | BadResponse | Refused)

    def offers(self, capability: str | None) -> bool:
        """Whether it named this capability when it last answered; True for None."""
        return capability is None or self.client.offers(capability)

    @property
    def resting(self) -> bool:
        """Whether it belongs to the fleet but gets no calls at present."""
        return self.cooldown is not None and not self.left

    @property
    def has_room(self) -> bool:
        """Whether it could take a call now."""
        return self.in_flight < self.slots

    def admit(self, discovery: DiscoverResult) -> None:
        """Take over what the server declares, and let it work."""
        self.instance = discovery.server.instance_id
        self.described = discovery
        self.slots = discovery.limits.max_concurrency
        self.cooldown = None
        self.failures = 0
        self.answered_at = time.monotonic()

    @contextmanager
    def answering(self, call: Call[Any]) -> Iterator[None]:
        """List the call in `sent` during the block, if it is for a request of the journal."""
        if call.request is None:
            yield
            return
        sent = SentCall(call.request, time.monotonic(), self.client.example_limit_s)
        self.sent[sent] = None
        try:
            yield
        finally:
            del self.sent[sent]

    def answered(self, cooldowns: int) -> None:
        """Note that a call brought a result; `cooldowns`: the endpoint's when the call was sent."""
        self.answered_at = time.monotonic()
        if cooldowns == self.cooldowns:
            self.failures = 0
            self.growth = 0

    def failed(self, cooldowns: int) -> bool:
        """Note an inconclusive call; True if there were too many in a row."""
        if cooldowns == self.cooldowns:
            self.failures += 1
        return self.failures >= FAILURES_TO_COOL_DOWN

    def next_cooldown_s(self, requested_s: float = 0.0) -> float:
        """Return how long to cool down now: doubled each time until a call succeeds, at least as requested."""
        pause_s = max(growing_s(FIRST_S, 2.0, self.growth), min(requested_s, LONGEST_REQUESTED_S))
        self.growth += 1
        return pause_s

    # --- health ------------------------------------------------------------------------------------------------------

    async def was_replaced(self) -> bool:
        """Whether, after a silence, another process answers; asked once for all calls about to be sent.

        An endpoint that does not answer counts as not replaced: the call finds out and is retried by its own rules.
        """
        return time.monotonic() - self.answered_at >= SILENCE_S and await self.is_replaced()

    async def is_replaced(self) -> bool:
        """Whether another process answers than the one that was admitted, asked now."""
        if self.checking is None:
            self.checking = asyncio.create_task(self._check_instance())
        return await asyncio.shield(self.checking)

    async def _check_instance(self) -> bool:
        known = self.instance
        try:
            discovery = await self.client.discover(timeout_s=CHECK_TIMEOUT_S, resends=0)
        except (ClientError, RpcError):
            return False
        finally:
            self.checking = None
        self.answered_at = time.monotonic()
        return discovery.server.instance_id != known

    async def drain(self) -> None:
        """Wait until the last call has ended; if the process is gone, end the remaining calls as lost.

        A connection may stay open, or be made again, without the process behind it, if a proxy or a shared socket
        stands in front of it.
        """
        silent = 0
        while self.in_flight:
            try:
                discovery = await self.client.discover(timeout_s=DRAIN_TIMEOUT_S, resends=0)
            except ConnectionLost as lost:
                silent = DRAIN_SILENT_POLLS if lost.refused else silent + 1
            except ClientError:  # something answers, but it is not the server
                silent += 1
            except RpcError:
                silent = 0
            else:
                silent = 0 if discovery.server.instance_id == self.instance else DRAIN_SILENT_POLLS
            if silent >= DRAIN_SILENT_POLLS:
                await self.client.cut(f"{self.url} has left the fleet, and no server answers there")
                return
            await asyncio.sleep(DRAIN_POLL_S)

    # --- commits -----------------------------------------------------------------------------------------------------

    async def upload(self, bundles: Sequence[Bundle]) -> None:
        """Have the server import those of these commits, parents first, that it has not imported yet.

        A second call waits for the upload under way. Raises: RpcError, ClientError: it did not accept them.
        """
        if self.client.discovery is None:
            raise AssertionError("endpoints are discovered before they are called")
        limit = REQUEST_SHARE * self.client.discovery.limits.max_request_bytes
        instance = self.client.instance_id
        async with self.uploading:
            for part in _requests([each for each in bundles if (instance, each[0]) not in self.uploaded], limit):
                answer = await self.client.call("import_commits", {"bundles": [bundle for _, bundle in part]})
                validated(ImportCommitsResult, answer)
                self.uploaded |= {(instance, commit) for commit, _ in part}


def _requests(bundles: Sequence[Bundle], limit: float) -> Iterator[list[Bundle]]:
    """Yield the bundles in order, as many at a time as one request may hold."""
    part: list[Bundle] = []
    size = 0
    for commit, bundle in bundles:
        if part and size + len(bundle) > limit:
            yield part
            part, size = [], 0
        part.append((commit, bundle))
        size += len(bundle)
    if part:
        yield part


async def attempt_once(endpoint: Endpoint, call: Call[T], log: AttemptLog) -> Reply[T]:
    """Send the call and write how it ended.

    Raises: what `RpcClient.send` raises.
    """
    call_id = await log.start(endpoint.url, endpoint.client.instance_id, repeat=False)
    try:
        reply = await endpoint.client.send(call, call_id if endpoint.client.offers("idempotency") else None)
    except BaseException as error:
        known = isinstance(error, BadResponse | Refused | RpcError)
        log.finish("lost" if isinstance(error, ConnectionLost) else "error" if known else "cancelled", examples=0)
        raise
    write_end(log, reply)
    return reply


def write_end(log: AttemptLog, reply: Reply[Any], failed: Sequence[FailedTry] = ()) -> None:
    """Write the end of an attempt that brought results; `failed`: the examples that are tried again."""
    log.finish(
        reply.outcome,
        seconds=reply.seconds,
        usage=reply.usage,
        examples=reply.examples,
        unpriced=reply.unpriced,
        failed=failed,
    )
