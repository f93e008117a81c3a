"""What a fleet is given to do, and what comes back: one call, its attempts, and where it must go."""

from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Answered(Generic[T]):
    """What a `send` returns: the value wanted, and what the attempt came to.

    `outcome`: the result's status. `seconds`: as the server says. `usage`: the contract's `Usage`, None where nothing
    was said. `examples`: how many results came; `unpriced`: how many of them without a `cost_usd`.
    """

    value: T
    outcome: str = "ok"
    seconds: float | None = None
    usage: dict[str, Any] | None = None
    examples: int = 1
    unpriced: int = 0


class NoVerdict(Exception):
    """The call was answered, but with `infra_error` or `cancelled` for an example: not a result, to be tried again.

    `outcome`: which of the two; the rest as in `Answered`.
    """

    def __init__(
        self,
        message: str,
        *,
        outcome: str = "infra_error",
        seconds: float | None = None,
        usage: dict[str, Any] | None = None,
        examples: int = 1,
        unpriced: int = 0,
    ) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.seconds = seconds
        self.usage = usage
        self.examples = examples
        self.unpriced = unpriced


class Attempts(Protocol):
    """The attempts of one call, written down by whoever must be able to tell later what was sent where."""

    def unfinished(self) -> tuple[str, str | None] | None:
        """(url, instance) of an attempt that an earlier process sent and never saw end."""

    async def sent(self, url: str, instance: str | None, *, again: bool) -> str:
        """An attempt is about to be made: its call id, recorded before this returns.

        `again`: the attempt before is repeated under its own id, so that finished work is collected. What this raises
        ends the call; nothing was sent.
        """

    def ended(
        self,
        outcome: str,
        *,
        seconds: float | None = None,
        usage: dict[str, Any] | None = None,
        examples: int = 1,
        unpriced: int = 0,
    ) -> None:
        """The attempt has come to something.

        `outcome`: a result's status; or, without a result and with 0 `examples`, `lost` (nobody knows), `refused` (it
        never ran), `error` (an error response) or `cancelled` (by whoever asked). An attempt whose answer may yet be
        collected when the call is interrupted is not ended.
        """


class Pin:
    """Keeps the calls of one traced minibatch on one instance, which alone can read the refs it gives.

    `instance`: that instance, None until the first call chose one; it changes when the instance is gone. `settled`: the
    instance holds something already, so that moving has a price.
    """

    def __init__(self, instance: str | None = None) -> None:
        self.instance = instance
        self.settled = instance is not None

    def move(self, instance: str | None) -> None:
        """From now on the calls go there; None: wherever the next one goes."""
        if instance != self.instance:
            self.instance = instance
            self.settled = False
