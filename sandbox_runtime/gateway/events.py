"""Events of the gateway: each model call, connection to a host and refused request, and that the cap is reached."""

from collections.abc import Callable
from dataclasses import dataclass

from evolverpc_common.model_prices import TokenCounts


@dataclass(frozen=True)
class ProviderCall:
    """A finished call to a provider.

    `path`: as requested, without the query. `status`: the provider's, None if it sent none. `seconds`: from sending to
    the last byte. `tokens`: the provider's counts, as far as they were received. `cost_usd`: None if unknown: no price,
    no count of tokens, or the sandbox disconnected before the count arrived. `counted_usd`: what was counted against
    the cap; if the cost is unknown, the most that the call may have cost.
    """

    sandbox: str
    provider: str
    model: str
    path: str
    status: int | None
    seconds: float
    tokens: TokenCounts | None
    cost_usd: float | None
    counted_usd: float
    streamed: bool


@dataclass(frozen=True)
class GatewayRefusal:
    """A request of a sandbox that was refused. `what`: the sandbox's own text, printable and bounded.

    `times`: the first refusal is reported at once; repetitions are reported together when the session closes.
    """

    sandbox: str
    what: str
    reason: str
    times: int = 1


@dataclass(frozen=True)
class HostConnection:
    """A finished connection of a sandbox through the proxy to an allowed host, or a request with a secret header.

    `sent`, `received`: bytes from the sandbox and to it; of a request with a secret header, those of the bodies.
    `seconds`: from the connection to its end. `reached`: whether the host answered. `method`: of the request; `CONNECT`
    if the program's own TLS hides it.
    """

    sandbox: str
    host: str
    port: int
    sent: int
    received: int
    seconds: float
    reached: bool
    method: str


@dataclass(frozen=True)
class CapReached:
    """The spend cap is reached: from now on calls to models are held, not refused, until their session closes."""


GatewayEvent = ProviderCall | GatewayRefusal | HostConnection | CapReached
Report = Callable[[GatewayEvent], None]

KINDS = 200
"""How many different refusals of one sandbox are reported separately."""

SHOWN = 200
"""Characters of a request that are reported."""


class RefusalLog:
    """The refusals of one sandbox: each kind is reported once, repetitions are counted."""

    def __init__(self, sandbox: str, report: Report) -> None:
        self._sandbox = sandbox
        self._report = report
        self._repeated: dict[tuple[str, str], int] = {}

    def add(self, what: str, reason: str) -> None:
        """Report a refusal, or count it if it was reported before."""
        key = (shown(what), reason)
        if key not in self._repeated and len(self._repeated) >= KINDS:
            key = ("further refusals", "more than are reported separately")
        if key in self._repeated:
            self._repeated[key] += 1
        else:
            self._repeated[key] = 0
            self._report(GatewayRefusal(self._sandbox, *key))

    def close(self) -> None:
        """Report the repetitions."""
        repeated, self._repeated = self._repeated, {}
        for key, times in repeated.items():
            if times:
                self._report(GatewayRefusal(self._sandbox, *key, times))


def shown(text: str) -> str:
    """Return printable ASCII of a bounded length, because the text is untrusted and goes to terminals and reports."""
    return ascii(text[:SHOWN])[1:-1][:SHOWN]
