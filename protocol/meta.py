"""`params._meta`: data about the call itself rather than about the program."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from protocol.base import RequestModel

MAX_CALL_ID_LENGTH = 256

CallId = Annotated[str, Field(min_length=1, max_length=MAX_CALL_ID_LENGTH)]
"""The caller's own name for a call, unique within the server's `keep_answers_s`."""


class Meta(BaseModel):
    """Optional in every request; unknown keys are always allowed, so that tracing headers and the like may ride along.

    `protocol_version`: the version this request is written in; without it, the server's newest.
    `call_id`: makes the call idempotent (capability `idempotency`).
    `wait_s`: seconds to wait before answering `pending` (capability `async`); needs a `call_id`.
    `group`: names a minibatch; asks for `trajectory_ref` in place of inline trajectories (capability `refs`).
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="allow")

    protocol_version: str | None = None
    call_id: CallId | None = None
    wait_s: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    group: Annotated[str, Field(min_length=1, max_length=MAX_CALL_ID_LENGTH)] | None = None


class Params(RequestModel):
    """The params of a method: its own named fields, and `_meta`."""

    meta: Meta | None = Field(default=None, alias="_meta")
