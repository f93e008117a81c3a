"""What is recorded of a change of code: what was asked for, and what was made of it or why nothing was."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, model_validator

from protocol import ApplyMutationResult, Usage


class Rejection(BaseModel):
    """Why a mutation was refused, as the contract's `MutationRejected` says. `diff`: what was refused, where it was."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    stage: str
    reason: str
    log_tail: str | None = None
    diff: str | None = None
    usage: Usage | None = None


class MutationEntry(BaseModel):
    """The answer of an entry of the kind `mutation`: exactly one of `applied` and `rejected` is there.

    `request`: what was asked for, for a merge in our words. `parent`, `other`: the commits it starts from; `other` is
    there for a merge alone.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    kind: Literal["change_request", "merge"]
    request: str
    location: str | None = None
    parent: str
    other: str | None = None
    applied: ApplyMutationResult | None = None
    rejected: Rejection | None = None

    @model_validator(mode="after")
    def _one_outcome(self) -> Self:
        if (self.applied is None) == (self.rejected is None):
            raise ValueError("a mutation is either `applied` or `rejected`")
        return self
