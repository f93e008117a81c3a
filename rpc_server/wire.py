"""JSON on the wire, strict when read and written whole or not at all, and the check of params against the models."""

import json
from typing import Any, TypeVar

import orjson
from pydantic import ValidationError

from evolverpc_common.exact_values import has_long_integers, loads
from protocol import KNOWN_VERSIONS, JsonValue, Params
from protocol.errors import InvalidParams, LimitExceeded, ParseError, VersionNotSupported


def read(body: bytes | bytearray) -> Any:
    """Parse the JSON value in `body`, integers with all their digits.

    Raises:
        ParseError: empty, not JSON, not UTF-8, NaN or Infinity, or nested beyond `MAX_READABLE_NESTING`.
    """
    try:
        value = orjson.loads(body)
        return loads(body) if has_long_integers(body) else value
    except orjson.JSONDecodeError as error:
        raise ParseError(reason=str(error)) from None


def write(value: JsonValue) -> bytes:
    """Serialize the value as compact JSON in UTF-8; an `orjson.Fragment` inside it is copied.

    Raises:
        LimitExceeded: nested deeper than can be written.
        TypeError: something in it is not JSON.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        # orjson reads 1,024 levels but writes 254, and what was read must be writable.
        return _write_deep(value)


def write_to_keep(value: JsonValue) -> bytes:
    """Serialize without excess memory: orjson's own result may hold up to eight times its bytes. Raises as `write`."""
    return bytes(memoryview(write(value)))


def canonical(value: JsonValue) -> bytes:
    """Serialize with sorted keys, for digests. Raises as `write`."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return _write_deep(value, sort_keys=True)


def _write_deep(value: JsonValue, *, sort_keys: bool = False) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=sort_keys)
    except RecursionError:
        raise LimitExceeded("nested too deep", limit="nesting") from None
    return text.encode()


Request = TypeVar("Request", bound=Params)

_MOST_ERRORS = 20
_MOST_LOOKED_AT = 1_000
"""Errors beyond which none is formatted: each costs a hundred times the bytes that caused it."""

_PLAINER = {"extra_forbidden": "unknown field", "missing": "missing field"}


def read_params(model: type[Request], params: dict[str, Any]) -> Request:
    """Return the params as the method's model.

    Raises:
        VersionNotSupported: `_meta.protocol_version` names an unsupported version.
        InvalidParams: with `errors: [{path, message}]`, the first 20; of a list, those of its first faulty member.
    """
    check_version(params)  # before the fields, as a newer version may have further ones
    try:
        request = model.model_validate(params, by_alias=True, by_name=False)
    except ValidationError as error:
        if error.error_count() > _MOST_LOOKED_AT:
            raise invalid("", f"{error.error_count()} faults, too many to list") from None
        raise InvalidParams(errors=_described(error, params)[:_MOST_ERRORS]) from None
    if request.meta is not None and request.meta.wait_s is not None and request.meta.call_id is None:
        raise invalid("_meta.wait_s", "needs a `_meta.call_id` to collect the answer with")
    return request


def check_version(params: Any) -> None:
    """Check the version that a request is written in; raises `VersionNotSupported`. `params`: any JSON."""
    meta = params.get("_meta") if type(params) is dict else None
    version = meta.get("protocol_version") if type(meta) is dict else None
    if type(version) is str and version not in KNOWN_VERSIONS:
        raise VersionNotSupported(supported=list(KNOWN_VERSIONS), requested=version[:100])


def first_error(error: ValidationError, value: Any) -> str:
    """Return `path: message` of the first error in a value."""
    first = _described(error, value)[0]
    return f"{first['path']}: {first['message']}" if first["path"] else first["message"]


def invalid(path: str, message: str) -> InvalidParams:
    """Return the error of one param that the models cannot check."""
    return InvalidParams(errors=[{"path": path, "message": message}])


def _described(error: ValidationError, value: Any) -> list[dict[str, str]]:
    return [
        {
            "path": _path(one["loc"], value),
            "message": _PLAINER.get(one["type"], one["msg"].removeprefix("Value error, ")),
        }
        for one in error.errors(include_url=False, include_context=False, include_input=False)
    ]


def _path(location: tuple[int | str, ...], value: Any) -> str:
    """Format a pydantic location as `batch[0].data`, without the names pydantic adds for unions and validators.

    A step counts if the value has it, or if it is the last one: the missing field.
    """
    path = ""
    for position, step in enumerate(location):
        if isinstance(value, list) and isinstance(step, int) and step < len(value):
            path += f"[{step}]"
            value = value[step]
        elif isinstance(value, dict) and isinstance(step, str) and (step in value or position == len(location) - 1):
            if step != "[key]":
                path += f".{step}" if path else step
            value = value.get(step)
    return path
