"""Events of the gateway: each model call, and each request that was refused."""

from collections.abc import Callable
from dataclasses import dataclass

from evolverpc_common.model_prices import TokenCounts


@dataclass(frozen=True)
class ProviderCall:
    """A call that went to a provider, once it is over.

    `path`: as the sandbox asked, without the query. `status`: the provider's, None where it gave none. `seconds`: from
    sending to the last byte. `tokens`: what the provider said of them, as far as that was seen. `cost_usd`: None where
    it is not known: no price, no count of tokens, or the sandbox hung up before the count came. `counted_usd`: what was
    counted against the cap, which then is the most that the call may have cost.
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
    """Something a sandbox asked for and did not get. `what`: printable, bounded, the sandbox's own words.

    `times`: the first is told at once; those that repeat it are told together when the passage closes.
    """

    sandbox: str
    what: str
    reason: str
    times: int = 1


KINDS = 200
"""How many different refusals of one sandbox are told one by one."""

SHOWN = 200
"""Characters of what was asked."""


class RefusalLog:
    """Those of one sandbox."""

    def __init__(self, sandbox: str, tell: Callable[[GatewayRefusal], None]) -> None:
        self._sandbox = sandbox
        self._tell = tell
        self._repeated: dict[tuple[str, str], int] = {}

    def add(self, what: str, reason: str) -> None:
        """Tell it, or count it where it was told before."""
        key = (shown(what), reason)
        if key not in self._repeated and len(self._repeated) >= KINDS:
            key = ("further refusals", "more than are told one by one")
        if key in self._repeated:
            self._repeated[key] += 1
        else:
            self._repeated[key] = 0
            self._tell(GatewayRefusal(self._sandbox, *key))

    def close(self) -> None:
        """Tell the repetitions."""
        repeated, self._repeated = self._repeated, {}
        for key, times in repeated.items():
            if times:
                self._tell(GatewayRefusal(self._sandbox, *key, times))


def shown(text: str) -> str:
    """Printable ASCII of a bounded length: it is a stranger's, and goes to terminals and reports."""
    return ascii(text[:SHOWN])[1:-1][:SHOWN]
