"""Check params against the contract's models; report each error by its path."""

from typing import Any, TypeVar

from pydantic import ValidationError

from protocol import KNOWN_VERSIONS, Params
from protocol.errors import InvalidParams, VersionNotSupported

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
