"""What the gateway tells: every call of a model, and everything it refused."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Tokens:
    """What a provider counted for one call; no token is in two of them.

    `input`: neither read from nor written to a cache. `cached`: read from one. `written`: written to one, of which
    `written_hour` for an hour rather than for minutes. `output`: reasoning included.
    """

    input: int = 0
    cached: int = 0
    written: int = 0
    written_hour: int = 0
    output: int = 0

    @property
    def all_input(self) -> int:
        """Everything that was read, from wherever."""
        return self.input + self.cached + self.written


@dataclass(frozen=True)
class ModelCall:
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
    tokens: Tokens | None
    cost_usd: float | None
    counted_usd: float
    streamed: bool


@dataclass(frozen=True)
class Refusal:
    """Something a sandbox asked for and did not get. `what`: printable, bounded, the sandbox's own words.

    `times`: the first is told at once; those that repeat it are told together when the passage closes.
    """

    sandbox: str
    what: str
    reason: str
    times: int = 1
