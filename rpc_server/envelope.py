"""Is this a JSON-RPC 2.0 request? Answered at the same cost whatever its params hold."""

from typing import Any

from protocol.envelope import MAX_SAFE_INTEGER
from protocol.errors import InvalidRequest

_MEMBERS = frozenset({"jsonrpc", "method", "params", "id"})


def check_envelope(message: Any) -> None:
    """Pass one request or notification; its params are looked at, never into.

    Raises:
        InvalidRequest: with a `reason`.
    """
    if type(message) is not dict:
        raise InvalidRequest(reason="a request is an object")
    # The length first: a set comparison would walk an object of a million members.
    if len(message) > len(_MEMBERS) or not message.keys() <= _MEMBERS:
        raise InvalidRequest(reason="a request has the members jsonrpc, method, params and id, and no others")
    if message.get("jsonrpc") != "2.0":
        raise InvalidRequest(reason='jsonrpc must be "2.0"')
    if type(message.get("method")) is not str:
        raise InvalidRequest(reason="method must be a string")
    if "params" in message and type(message["params"]) not in (dict, list):
        raise InvalidRequest(reason="params must be an object")
    if "id" in message and not _is_id(message["id"]):
        raise InvalidRequest(reason="id must be a string, an integer within 2^53 - 1 or null")


def _is_id(value: Any) -> bool:
    # By exact type: true and false are no integers here.
    if type(value) is int:
        return -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER
    return type(value) is str or value is None
