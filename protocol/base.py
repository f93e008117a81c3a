"""What every message is made of: the bases of all models, `params._meta`, the JSON-RPC 2.0 envelope, and nesting."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeVar

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from evolverpc_common.exact_values import MAX_SAFE_INTEGER

KNOWN_VERSIONS: tuple[str, ...] = ("1",)
"""The versions of the contract that this code speaks, newest last."""

CURRENT_VERSION: str = KNOWN_VERSIONS[-1]

Member = TypeVar("Member")

JsonValue = Any
"""Any JSON value. Outputs, trajectories and example data stay opaque: they are carried, never inspected."""

Candidate = dict[str, str]
"""A mapping from component name to component text (GEPA's word)."""

Items = Annotated[list[Member], Field(fail_fast=True)]
"""A list, checked up to its first faulty member: a million faults would cost a thousand times the body they are in."""


def _whole(value: Any) -> Any:
    return int(value) if type(value) is float and value.is_integer() else value


WHOLE = BeforeValidator(_whole)
"""For integers: JSON has one kind of number, so `1.0` and `1e2` are the integers 1 and 100, as in JSON Schema."""


class RequestModel(BaseModel):
    """Something a client sends. Unknown fields are refused, so that a misspelt one is never ignored."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", defer_build=True)


class ResultModel(BaseModel):
    """Something a server answers. Unknown fields are ignored, so that results can grow within a version."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", defer_build=True)


MAX_CALL_ID_LENGTH = 256

CallId = Annotated[str, Field(min_length=1, max_length=MAX_CALL_ID_LENGTH)]
"""The caller's own name for a call, unique within the server's `keep_answers_s`."""


class Meta(BaseModel):
    """Optional in every request; unknown keys are always allowed, so that tracing headers and the like may ride along.

    `protocol_version`: the version this request is written in; without it, the server's newest.
    `call_id`: makes the call idempotent (capability `idempotency`).
    `wait_s`: seconds to wait before answering `pending` (capability `async`); needs a `call_id`.
    `group`: names a minibatch; asks for `trajectory_ref` in place of inline trajectories (capability `refs`).
    `example_timeout_s`: lowers the server's limit of this name for the examples of this call (capability
    `example_timeout`); a larger value changes nothing.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="allow", defer_build=True)

    protocol_version: str | None = None
    call_id: CallId | None = None
    wait_s: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    group: Annotated[str, Field(min_length=1, max_length=MAX_CALL_ID_LENGTH)] | None = None
    example_timeout_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)


class Params(RequestModel):
    """The params of a method: its own named fields, and `_meta`."""

    meta: Meta | None = Field(default=None, alias="_meta")


RequestId = str | Annotated[int, Field(ge=-MAX_SAFE_INTEGER, le=MAX_SAFE_INTEGER), WHOLE] | None


class Request(RequestModel):
    """A request; without `id` a notification, which gets no answer."""

    jsonrpc: Literal["2.0"]
    method: str
    params: dict[str, JsonValue] = {}
    id: RequestId = None


class ErrorObject(ResultModel):
    """An error. `data.retryable`: whether the same request, later or elsewhere, can succeed."""

    code: Annotated[int, WHOLE]
    message: str
    data: JsonValue = None


class SuccessResponse(ResultModel):
    """An answer."""

    jsonrpc: Literal["2.0"]
    id: RequestId
    result: JsonValue


class ErrorResponse(ResultModel):
    """A refusal; `id` is null where the request's could not be read."""

    jsonrpc: Literal["2.0"]
    id: RequestId
    error: ErrorObject


MAX_READABLE_NESTING = 1024
"""Levels of arrays and objects that orjson reads."""

MAX_WRITABLE_NESTING = 254
"""Levels of arrays and objects that orjson writes."""

MAX_RESULT_NESTING = 200
"""Levels that the result of an example may have. Fewer than can be written, because results travel inside messages."""


def is_nested_deeper(value: Any, levels: int) -> bool:
    """Return whether a JSON value has more than `levels` levels of arrays and objects (at most `MAX_WRITABLE_NESTING`).

    A scalar has no level, `[]` has one.
    """
    wrapped = value
    for _ in range(MAX_WRITABLE_NESTING - levels):
        wrapped = [wrapped]
    try:
        orjson.dumps(wrapped)
    except TypeError:  # too deep, or an integer of more than 64 bits: count the levels
        layer = [value]
        for _ in range(levels):
            layer = [member for part in layer for member in _members(part)]
        return any(isinstance(part, list | dict) for part in layer)
    return False


def _members(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
