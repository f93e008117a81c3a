"""Compare every message of an endpoint with the contract's models: the envelope, and the method's result."""

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from pydantic import BaseModel, ValidationError

from protocol import METHODS, Pending
from protocol.base import ErrorResponse, SuccessResponse

UNREADABLE_ID = frozenset({-32700, -32600})
"""Errors that may carry a null id although the request had one."""


class NotJson(ValueError):
    """The body is not JSON: not UTF-8, cut short, or with NaN in it."""


def read(body: bytes) -> Any:
    """Parse the body as strict JSON.

    Raises:
        NotJson: with the reason.
    """
    try:
        return json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise NotJson(f"the answer is not JSON: {error}") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def problems(message: Any, request: Any, methods: Mapping[str, str], *, refused: bool) -> list[str]:
    """Return where an answer breaks the contract's schema, one line each.

    `request`: what was sent, as JSON, or None if it was not JSON. `methods`: call id -> method, of the calls made so
    far, since `get_result` answers in the shape of another call. `refused`: HTTP refused the request, possibly before
    its id was read.
    """
    if isinstance(message, list):
        by_id = {_key(entry.get("id")): entry for entry in request or [] if isinstance(entry, dict)}
        return [
            f"[{at}] {line}"
            for at, entry in enumerate(message)
            for line in _one(
                entry, by_id.get(_key(entry.get("id"))) if isinstance(entry, dict) else None, methods, False
            )
        ]
    return _one(message, request if isinstance(request, dict) else None, methods, refused)


def _key(value: Any) -> str:
    return json.dumps(value)


def _one(message: Any, request: Mapping[str, Any] | None, methods: Mapping[str, str], refused: bool) -> list[str]:
    if not isinstance(message, dict):
        return ["the answer is not a JSON-RPC object"]
    if ("result" in message) == ("error" in message):
        return ["the answer must have either `result` or `error`"]
    if "error" in message:
        lines = _misfits(ErrorResponse, message)
        code = message["error"].get("code") if isinstance(message["error"], dict) else None
        return lines or _wrong_id(message, request, may_be_null=refused or code in UNREADABLE_ID)
    lines = _misfits(SuccessResponse, message) or _wrong_id(message, request, may_be_null=False)
    if lines or request is None:
        return lines
    return _misfits_of_result(message["result"], request, methods)


def _wrong_id(message: Mapping[str, Any], request: Mapping[str, Any] | None, *, may_be_null: bool) -> list[str]:
    answered = message["id"]
    if (answered is None and may_be_null) or request is None or "id" not in request:
        return []
    asked = request["id"]
    if type(asked) is type(answered) and asked == answered:
        return []
    return [f"the answer has id {answered!r}, the request had {asked!r}"]


def _misfits_of_result(result: Any, request: Mapping[str, Any], methods: Mapping[str, str]) -> list[str]:
    name = request.get("method")
    params = request.get("params")
    if name == "get_result" and isinstance(params, dict):
        name = methods.get(str(params.get("call_id")), name)
    if isinstance(result, dict) and "pending" in result:
        return _misfits(Pending, result)
    method = METHODS.get(name) if isinstance(name, str) else None
    if method is None or method.result is None:
        return []
    return _misfits(method.result, result)


def _misfits(model: type[BaseModel], value: Any) -> list[str]:
    try:
        model.model_validate(value)
    except ValidationError as error:
        return [
            f"not a {model.__name__} at `{'.'.join(str(part) for part in misfit['loc'])}`: {misfit['msg']}"
            for misfit in error.errors(include_url=False, include_input=False)[:3]
        ]
    return []
