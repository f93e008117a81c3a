"""How a mutation is turned down: stage, reason, and what was known by then."""

from dataclasses import dataclass
from typing import Literal

from protocol.errors import MutationRejected, RpcError
from protocol.evaluation import Usage
from rpc_server.program.results import summed

Stage = Literal["agent", "edit", "empty", "paths", "size", "environment", "build", "check", "start", "push"]

MAX_DIFF = 20_000
"""Characters of a rejected diff that are told."""


@dataclass
class MutationDetails:
    """What has become known of a mutation so far: the agent's cost, and the diff.

    `killed`: how often the agent was killed by a signal that is none of ours.
    """

    usage: Usage | None = None
    diff: str | None = None
    killed: int = 0

    def add_usage(self, usage: Usage) -> None:
        """Add what an agent cost; what is unknown of either is left out."""
        before = self.usage or Usage()
        both = (one.model_dump(exclude_none=True) for one in (before, usage))
        self.usage = Usage.model_validate(summed(*both))

    def add_to(self, error: RpcError) -> None:
        """Add it to the error: the cost to any, the diff to one that is about it."""
        if self.usage is not None:
            error.details["usage"] = self.usage.model_dump(exclude_none=True)
        if self.diff is not None and isinstance(error, MutationRejected):
            error.details["diff"] = self.diff[:MAX_DIFF]


def rejected(stage: Stage, reason: str, *, log_tail: str | None = None) -> MutationRejected:
    """The error, for whoever asked and for whoever reflects on it; `log_tail`: the end of what a process wrote."""
    error = MutationRejected(f"Mutation rejected ({stage}): {reason}", stage=stage, reason=reason)
    if log_tail:
        error.details["log_tail"] = log_tail
    return error
