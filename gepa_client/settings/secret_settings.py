"""Which settings may hold secrets, and how a record is kept free of them."""

import re
from collections.abc import Iterable
from typing import Any

NOT_RECORDED = "(not recorded)"
"""Stands in a record where the value may have been a secret."""

_SECRET = re.compile(r"key|token|secret|password|credential|authorization", re.IGNORECASE)
_NOT_SECRET = frozenset(
    {
        *("token_file", "git_token_file"),
        *("key_env", "key_header", "secret_headers"),  # names, not what they hold
    }
)
_COUNT = re.compile(r"tokens$", re.IGNORECASE)
_TEXTS = frozenset({"reflection_prompt_template", "repo", "trainset", "valset", "testset"})
"""Settings whose inner keys are names of components or columns (one called `key_points` is no secret), and an address
that is refused with a password in it: the user of `ssh://git@host/...` is none."""

_URL_WITH_CREDENTIALS = re.compile(r"[\w+.-]+://[^/\s]*@\S*")


def without_secrets(key: str, value: Any) -> Any:
    """`value`, the setting of name `key` as JSON, without its parts that may be secrets."""
    return _parted(key, value, [])


def is_secret(key: str, value: Any) -> bool:
    """Whether this value, under this name, may be a secret as a whole."""
    if isinstance(value, str) and _URL_WITH_CREDENTIALS.fullmatch(value):
        return True
    count = isinstance(value, int) and _COUNT.search(key)  # max_tokens, budget_tokens
    return bool(_SECRET.search(key)) and key not in _NOT_SECRET and not count


def secret_parts(key: str, value: Any) -> list[Any]:
    """Return the parts of a setting as JSON that `without_secrets` leaves out."""
    parts: list[Any] = []
    _parted(key, value, parts)
    return parts


def _parted(key: str, value: Any, secrets: list[Any]) -> Any:
    """Return the setting without its parts that may be secrets, which are added to `secrets`."""
    if value is None or key in _TEXTS:
        return value
    if is_secret(key, value):
        secrets.append(value)
        return NOT_RECORDED
    if isinstance(value, dict):
        return {inner: _parted(str(inner), part, secrets) for inner, part in value.items()}
    if isinstance(value, list):
        return [_parted(key, part, secrets) for part in value]
    return value


def left_out(key: str, value: Any) -> str | None:
    """Where in a recorded setting something was left out, as `reflection_lm_kwargs.api_key`; None where nothing was."""
    if value == NOT_RECORDED:
        return key
    inside: Iterable[tuple[str, Any]] = ()
    if isinstance(value, dict):
        inside = value.items()
    elif isinstance(value, list | tuple):
        inside = (("", part) for part in value)
    for inner, part in inside:
        if found := left_out(f"{key}.{inner}" if inner else key, part):
            return found
    return None
