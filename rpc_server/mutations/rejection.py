"""The rejection of a mutation: stage, reason, and the usage and diff known by then."""

from dataclasses import dataclass
from typing import Literal

from protocol.errors import MutationRejected, RpcError
from protocol.evaluation import Usage
from rpc_server.program.example_results import summed

Stage = Literal["agent", "edit", "empty", "paths", "size", "environment", "build", "check", "start", "push"]

MAX_DIFF = 20_000
"""Characters of a rejected diff that are reported."""


@dataclass
class MutationDetails:
    """What is known of a mutation so far: the agent's usage, and the diff.

    `killed`: how often a signal that the server did not send killed the agent.
    """

    usage: Usage | None = None
    diff: str | None = None
    killed: int = 0

    def add_usage(self, usage: Usage) -> None:
        """Add an agent's usage; unknown fields stay out."""
        before = self.usage or Usage()
        both = (one.model_dump(exclude_none=True) for one in (before, usage))
        self.usage = Usage.model_validate(summed(*both))

    def add_to(self, error: RpcError) -> None:
        """Add the usage to any error, and the diff to a rejection."""
        if self.usage is not None:
            error.details["usage"] = self.usage.model_dump(exclude_none=True)
        if self.diff is not None and isinstance(error, MutationRejected):
            error.details["diff"] = self.diff[:MAX_DIFF]


def rejected(stage: Stage, reason: str, *, log_tail: str | None = None) -> MutationRejected:
    """Return the error of a rejected mutation; `log_tail`: the end of a process's output."""
    error = MutationRejected(f"Mutation rejected ({stage}): {reason}", stage=stage, reason=reason)
    if log_tail:
        error.details["log_tail"] = log_tail
    return error
