"""Check one JSON-RPC 2.0 envelope, at the same cost whatever its params hold."""

from typing import Any

from protocol.envelope import MAX_SAFE_INTEGER
from protocol.errors import InvalidRequest

_MEMBERS = frozenset({"jsonrpc", "method", "params", "id"})


def check_envelope(message: Any) -> None:
    """Check one request or notification, without looking inside its params.

    An id written as `1.0` or `1e2` is an integer, and is replaced by it, so that every server answers with the same id.

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
