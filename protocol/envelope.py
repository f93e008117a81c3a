"""The JSON-RPC 2.0 envelope around every message."""

from typing import Annotated, Literal

from pydantic import Field

from protocol.base import WHOLE, JsonValue, RequestModel, ResultModel

MAX_SAFE_INTEGER = 2**53 - 1
"""The largest integer every JSON reader keeps exactly; larger ones travel as strings."""

RequestId = str | Annotated[int, Field(ge=-MAX_SAFE_INTEGER, le=MAX_SAFE_INTEGER), WHOLE] | None


class Request(RequestModel):
    """A request; without `id` a notification, which gets no answer."""

    jsonrpc: Literal["2.0"]
    method: str
    params: dict[str, JsonValue] = {}
    id: RequestId = None


class ErrorObject(ResultModel):
    """An error: `data.retryable`: whether the same request, later or elsewhere, can succeed."""

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
