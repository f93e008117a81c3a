"""From the bytes of a body to the bytes of its answer: jsonrpcserver, fenced in.

It runs the method and frames the answer, one request at a time. What it must not do is done here: it neither parses nor
checks the envelope (its validator formats the whole payload, and a batch with one bad entry would get a single error),
never sees an exception (it would put its text on the wire), takes methods from no table but ours, and leaves batches,
bounded, to us.
"""

import asyncio
import logging
import sys
import warnings
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from evolverpc_common.exact_values import MAX_SAFE_INTEGER
from protocol import JsonValue
from protocol.errors import (
    InternalError,
    InvalidRequest,
    LimitExceeded,
    MethodNotFound,
    ParseError,
    RpcError,
    VersionNotSupported,
)
from rpc_server import wire
from rpc_server.wire import check_version, invalid

_MEMBERS = frozenset({"jsonrpc", "method", "params", "id"})


def check_envelope(message: Any) -> None:
    """Check one request or notification, without looking inside its params.

    An id written as `1.0` or `1e2` is replaced by its integer, so that every server returns the same id.

    Raises:
        InvalidRequest: with a `reason`.
    """
    if type(message) is not dict:
        raise InvalidRequest(reason="a request must be an object")
    # The length first: a set comparison would walk an object of a million members.
    if len(message) > len(_MEMBERS) or not message.keys() <= _MEMBERS:
        raise InvalidRequest(reason="a request has the members jsonrpc, method, params and id, and no others")
    if message.get("jsonrpc") != "2.0":
        raise InvalidRequest(reason='jsonrpc must be "2.0"')
    if type(message.get("method")) is not str:
        raise InvalidRequest(reason="method must be a string")
    if "params" in message and type(message["params"]) not in (dict, list):
        raise InvalidRequest(reason="params must be an object")
    if "id" in message:
        message["id"] = _request_id(message["id"])


def _request_id(value: Any) -> str | int | None:
    if value is None or type(value) is str:
        return value
    # By exact type: true and false are no integers here.
    if type(value) in (int, float) and -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER and value == int(value):
        return int(value)
    raise InvalidRequest(reason="id must be a string, an integer within 2^53 - 1 or null")


class _NoValidator:
    """What jsonrpcserver makes of its schema when imported, and never calls here: see `check_envelope`."""

    validate = None

    def __init__(self, _schema: Any) -> None:
        pass

    @staticmethod
    def check_schema(_schema: Any) -> None:
        pass


# Without it jsonschema is imported, which takes an eighth of a server's start.
_no_jsonschema = ModuleType("jsonschema.validators")
vars(_no_jsonschema)["validator_for"] = lambda _schema: _NoValidator

with warnings.catch_warnings():
    # Its import reads a file in a deprecated way.
    warnings.simplefilter("ignore", DeprecationWarning)
    _used = sys.modules.setdefault(_no_jsonschema.__name__, _no_jsonschema)
    from jsonrpcserver import Error, Success
    from jsonrpcserver.async_dispatcher import call
    from jsonrpcserver.dispatcher import create_request, to_response
    from jsonrpcserver.request import Request
    from jsonrpcserver.response import to_serializable_one
    from jsonrpcserver.sentinels import NOCONTEXT, NOID

    if _used is _no_jsonschema:
        del sys.modules[_no_jsonschema.__name__]

logger = logging.getLogger(__name__)

Handler = Callable[[dict[str, Any]], Awaitable[JsonValue]]
"""A method: params by name to a JSON result. An `RpcError` is the response; any other exception is a defect."""

_LONGEST_ECHOED_NAME = 100


@dataclass(frozen=True, slots=True)
class HttpReply:
    """An HTTP status, and the JSON body, None for no body."""

    status: int
    body: bytes | None


class Dispatcher:
    """Answers request bodies from one table of methods."""

    def __init__(self, handlers: Mapping[str, Handler], *, max_batch_entries: int) -> None:
        # Any, because jsonrpcserver types its table for synchronous methods alone.
        self._methods: dict[str, Any] = {name: _Method(name, handler) for name, handler in handlers.items()}
        self._max_batch_entries = max_batch_entries

    async def answer(self, body: bytes | bytearray) -> HttpReply:
        """Answer one HTTP body; everything but a cancellation becomes a response."""
        try:
            message = wire.read(body)
            del body  # here and below: a large request is not kept while its answer is written
            if type(message) is list:
                return await self._answer_batch(message)
            check_envelope(message)
        except (ParseError, InvalidRequest) as error:
            return HttpReply(400, error_body(error))
        except LimitExceeded as error:
            return HttpReply(200, error_body(error))
        answering = self._answer_one(message)
        del message
        answer = await answering
        return HttpReply(204, None) if answer is None else HttpReply(200, answer)

    async def _answer_batch(self, entries: list[Any]) -> HttpReply:
        if not entries:
            return HttpReply(200, error_body(InvalidRequest(reason="an array of requests must not be empty")))
        if len(entries) > self._max_batch_entries:
            raise LimitExceeded(limit="max_batch_entries", allowed=self._max_batch_entries, given=len(entries))
        answers = [answer for answer in await asyncio.gather(*map(self._answer_entry, entries)) if answer is not None]
        return HttpReply(200, b"[%b]" % b",".join(answers)) if answers else HttpReply(204, None)

    async def _answer_entry(self, entry: Any) -> bytes | None:
        try:
            check_envelope(entry)
        except InvalidRequest as error:
            return error_body(error)
        return await self._answer_one(entry)

    async def _answer_one(self, request: dict[str, Any]) -> bytes | None:
        name = request["method"]
        method = self._methods.get(name)
        if method is None:
            if "id" not in request:
                return None
            try:
                check_version(request.get("params"))  # a newer version may have further methods
            except VersionNotSupported as other:
                return error_body(other, request["id"])
            return error_body(MethodNotFound(method=name[:_LONGEST_ECHOED_NAME]), request["id"])
        if type(request.get("params")) is list:
            # jsonrpcserver would take an empty one for no params at all.
            error = invalid("", "params must be an object: they are given by name")
            return error_body(error, request["id"]) if "id" in request else None
        called = create_request(request)
        request_id = called.id
        calling = call(called, NOCONTEXT, method)
        del request, called
        result = await calling
        if request_id is NOID:
            return None
        response = to_serializable_one(to_response(Request(name, {}, request_id), result))
        del result
        try:
            return wire.write(response)
        except LimitExceeded as error:
            return error_body(error, request_id)
        except TypeError:
            logger.exception("the result of %s is not JSON", name)
            return error_body(InternalError(), request_id)


class _Method:
    """A handler as jsonrpcserver calls it: every exception becomes a value, so that none is logged or sent there."""

    def __init__(self, name: str, handler: Handler) -> None:
        self._name = name
        self._handler = handler

    async def __call__(self, /, **params: Any) -> Any:
        try:
            return Success(await self._handler(params))
        except RpcError as error:
            return _error(error)
        except Exception:
            logger.exception("unexpected error in %s", self._name)
            return _error(InternalError())


def _error(error: RpcError) -> Any:
    wired = error.to_wire()
    return Error(wired["code"], wired["message"], wired["data"])


def error_body(error: RpcError, request_id: str | int | None = None) -> bytes:
    """Return a JSON-RPC error response as bytes."""
    return wire.write({"jsonrpc": "2.0", "error": error.to_wire(), "id": request_id})
