"""What attempts at a mutation cost that brought no result: an agent that worked is paid for all the same."""

from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from gepa_client.errors import Refused
from gepa_client.fleet.work import Attempts
from protocol import Usage
from protocol import errors as rpc_errors
from protocol.errors import RpcError

NEVER_BEGUN = (
    Refused,
    rpc_errors.ParseError,
    rpc_errors.InvalidRequest,
    rpc_errors.MethodNotFound,
    rpc_errors.InvalidParams,
    rpc_errors.VersionNotSupported,
    rpc_errors.Unauthorized,
    rpc_errors.UnknownCandidate,
    rpc_errors.LimitExceeded,
)
"""Errors of requests that no agent ever saw."""


@dataclass
class PaidAttempts:
    """The attempts of one mutation; their ends without a result are written with what they cost.

    `agent`: a coding agent works on it, so that an end without a price is one more price that nobody knows.
    """

    attempts: Attempts
    agent: bool
    _error: Exception | None = field(default=None, init=False)

    def failed(self, error: Exception) -> None:
        """The open attempt is about to end with this error."""
        self._error = error

    def unfinished(self) -> tuple[str, str | None] | None:
        """As the attempts'."""
        return self.attempts.unfinished()

    async def sent(self, url: str, instance: str | None, *, again: bool) -> str:
        """As the attempts'."""
        self._error = None
        return await self.attempts.sent(url, instance, again=again)

    def ended(
        self,
        outcome: str,
        *,
        seconds: float | None = None,
        usage: dict[str, Any] | None = None,
        examples: int = 1,
        unpriced: int = 0,
    ) -> None:
        """As the attempts'; without a result, what the error says of its cost is added."""
        if not examples:
            usage = _usage_in(self._error)
            begun = outcome != "refused" and not isinstance(self._error, NEVER_BEGUN)
            unpriced = int(self.agent and begun and (usage or {}).get("cost_usd") is None)
        self.attempts.ended(outcome, seconds=seconds, usage=usage, examples=examples, unpriced=unpriced)


def _usage_in(error: Exception | None) -> dict[str, Any] | None:
    """What an error response says its call cost; None where it says nothing, or nothing that can be read."""
    said = error.details.get("usage") if isinstance(error, RpcError) else None
    if said is None:
        return None
    try:
        return Usage.model_validate(said).model_dump(exclude_none=True)
    except ValidationError:
        return None
