"""What an HTTP answer means: a result, one of the contract's errors, or something that is no answer at all."""

from dataclasses import dataclass
from typing import TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from gepa_client.errors import BadResponse, ConnectionLost
from gepa_client.transport.error_format import data_of
from gepa_client.transport.response_limits import read, shallow
from protocol import JsonValue
from protocol.errors import LimitExceeded, Overloaded, RpcError, Unauthorized

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class Exchange:
    """One HTTP answer as it came; `body` complete and within the bound."""

    status: int
    retry_after: str
    body: bytes


def checked(model: type[Model], answer: JsonValue) -> Model:
    """The answer as the contract's model.

    Raises:
        BadResponse: it does not fit; the first misfit is named with its path.
    """
    try:
        return model.model_validate(answer)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        # Not `from error`: shown as its cause, it would tell of every misfit, however many a server answers.
        raise BadResponse(f"the answer does not fit {model.__name__} at `{where}`: {first['msg']}") from None


def is_pending(answer: JsonValue) -> bool:
    """Whether the call is still running: its answer is to be collected."""
    return isinstance(answer, dict) and isinstance(answer.get("pending"), dict)


def result_of(exchange: Exchange, request_id: int) -> JsonValue:
    """The result inside an HTTP answer; raises what the answer says or what its absence means.

    A result nested too deep to be stored becomes that example's failure (`gepa_client.transport.response_limits`).
    """
    if 300 <= exchange.status < 400:
        raise BadResponse(f"the server redirects (HTTP {exchange.status}); redirects are not followed")
    try:
        message, deep = read(exchange.body)
    except orjson.JSONDecodeError:
        message, deep = None, False
    if (
        not isinstance(message, dict)
        or message.get("jsonrpc") != "2.0"
        or ("result" in message) == ("error" in message)
    ):
        raise _without_answer(exchange)
    if "error" in message:
        if not isinstance(message["error"], dict):
            raise BadResponse("the answer's `error` is not an object")
        if deep:
            raise BadResponse("the answer is an error that nests too deep")
        error = RpcError.from_wire(message["error"])
        if known := data_of(error):
            error.add_note(known)  # a traceback shows it; `str` is the server's message alone
        raise error
    if message.get("id") != request_id:
        raise BadResponse(f"the answer is for id {message.get('id')!r}, not {request_id}")
    return shallow(message["result"]) if deep else message["result"]


def _without_answer(exchange: Exchange) -> Exception:
    """What an HTTP status means when no JSON-RPC message came with it: usually something in between speaking."""
    status = exchange.status
    if status in (401, 403):
        return Unauthorized(f"HTTP {status} without an answer of the server's own")
    if status == 413:
        return LimitExceeded("HTTP 413: the request is too large for something on the way")
    if status == 429:
        after = exchange.retry_after
        return Overloaded(f"HTTP {status}", retry_after_s=float(after) if after.isascii() and after.isdigit() else 1.0)
    if status >= 500:
        return ConnectionLost(f"HTTP {status} without a JSON-RPC answer")
    return BadResponse(f"HTTP {status} with a body that is no JSON-RPC answer: {exchange.body[:80]!r}")
