"""One endpoint of a fleet: its client, its slots, how it is doing, and how long it rests when it is not well."""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from gepa_client.errors import BadResponse, Refused
from gepa_client.fleet.endpoints_file import Address
from gepa_client.transport.address import RPC_PATH, find_proxy_token, find_token
from gepa_client.transport.rpc import RpcClient
from protocol import DiscoverResult
from protocol.errors import Overloaded, Unauthorized

FIRST_REST_S = 0.5
LONGEST_REST_S = 30.0
LONGEST_ASKED_S = 60.0
"""How long an overloaded server may ask us to stay away at a time."""

FAILURES_TO_REST = 3
"""`infra_error`s in a row after which the endpoint, rather than the examples, is suspected."""

Rest = Literal["lost", "overloaded", "failing", "broken", "unreached"]
"""Why an endpoint rests; `unreached`: it has never answered."""

_random = random.SystemRandom()  # never GEPA's global generator


@dataclass(eq=False)
class Endpoint:
    """What a fleet knows of one endpoint. Read the figures; only the fleet changes them.

    `url`: without `/rpc`. `slots`: examples it takes at once; `in_flight`: calls it has from us; `done`: those that
    gave a result. `up`: it takes new calls. `left`: it is no longer of the fleet. `gone`: whatever its instance knew is
    given up. `instance`: the server process that was let in; `heard`: when it last answered, on the monotonic clock.
    `rests`: how often it has rested: a call that was sent before a rest says nothing about the endpoint after it.
    """

    address: Address
    client: RpcClient
    slots: int = 0
    in_flight: int = 0
    done: int = 0
    up: bool = False
    left: bool = False
    gone: bool = False
    instance: str | None = None
    rests: int = 0
    rest: Rest | None = None
    since: float = 0.0
    until: float = 0.0
    overdue: bool = False
    failures: int = 0
    growth: int = 0
    said: str = ""
    stamp: int = 0
    heard: float = 0.0
    prober: asyncio.Task[None] | None = None
    asking: asyncio.Task[bool] | None = None
    pinned: list[tuple[int, int, Any]] = field(default_factory=list)

    @classmethod
    def at(cls, address: Address) -> "Endpoint":
        """An endpoint that nobody has spoken to yet; `read_token` comes first.

        Raises:
            Refused: the address cannot be used.
        """
        client = RpcClient(
            address.url,
            token=address.token,
            token_file=address.token_file,
            proxy_token=address.proxy_token,
            proxy_token_file=address.proxy_token_file,
            allow_insecure=address.allow_insecure,
            elsewhere=True,
            token_later=True,
        )
        return cls(address, client)

    def __repr__(self) -> str:
        return f"Endpoint({self.url!r})"

    def read_token(self, on_token: Callable[[str], None]) -> bool:
        """Look for the tokens where they come from; True when one is another, as after a restart of the server.

        `on_token`: hears of each before it is used.

        Raises:
            Refused: a file cannot be read, or holds no usable token; those before stay in use.
        """
        token = find_token(self.address.token, self.address.token_file)
        proxy_token = find_proxy_token(self.address.proxy_token, self.address.proxy_token_file)
        for found in (token, proxy_token):
            if found is not None:
                on_token(found)
        return self.client.use_token(token, proxy_token)

    def is_renewed_after(self, error: Exception) -> bool:
        """Whether the way to it may come back: somebody stands before it, whose token is renewed from time to time."""
        return self.address.proxy_token_file is not None and isinstance(error, Unauthorized | BadResponse | Refused)

    def offers(self, capability: str | None) -> bool:
        """Whether it named this capability when it last answered; True where none is wanted."""
        return capability is None or self.client.offers(capability)

    @property
    def url(self) -> str:
        """The address without `/rpc`, as people write it."""
        return self.client.url.removesuffix(RPC_PATH)

    @property
    def resting(self) -> bool:
        """Whether it belongs to the fleet but takes nothing at present."""
        return self.rest is not None and not self.left

    @property
    def room(self) -> int:
        """Calls it could take now; below zero where pinned calls wait for it."""
        return self.slots - self.in_flight - len(self.pinned)

    def admit(self, discovery: DiscoverResult) -> None:
        """It answers and may work: take over what it says of itself."""
        self.instance = discovery.server.instance_id
        self.slots = discovery.limits.max_concurrency
        self.rest = None
        self.overdue = False
        self.failures = 0
        self.heard = time.monotonic()

    def answered(self, rests: int) -> None:
        """A call gave a result; `rests` as it was when the call was sent."""
        self.done += 1
        self.heard = time.monotonic()
        if rests == self.rests:
            self.failures = 0
            self.growth = 0

    def failed(self, rests: int) -> bool:
        """A call ended as nobody's verdict; True when that makes one too many in a row."""
        if rests == self.rests:
            self.failures += 1
        return self.failures >= FAILURES_TO_REST

    def next_rest_s(self, asked_s: float = 0.0) -> float:
        """How long to stay away now: twice as long each time until a call succeeds, at least what was asked."""
        growing = min(FIRST_REST_S * 2.0**self.growth, LONGEST_REST_S) * _random.uniform(0.75, 1.25)
        self.growth = min(self.growth + 1, 10)
        return max(growing, min(asked_s, LONGEST_ASKED_S))


def asked_pause_s(error: Overloaded) -> float:
    """Seconds an overloaded server asked us to stay away."""
    asked = error.details.get("retry_after_s")
    return float(asked) if isinstance(asked, int | float) else 0.0
